use payferry_domain::{Chain, Finality, FinalityPolicy};
use payferry_evm::ChainSpec;

use super::*;

fn refused(file: &str, env: &[(&str, &str)]) -> String {
    let path = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(&path, file).unwrap();
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let error = Config::load(Some(path.path()), env).unwrap_err().to_string();
    error.replace(&path.path().display().to_string(), "payferry.toml")
}

#[test]
fn later_layers_override_earlier_ones() {
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&path, "[server]\nlisten = \"127.0.0.1:1\"\noperator_listen = \"127.0.0.1:2\"\n").unwrap();
    let env = [("PAYFERRY_SERVER__LISTEN", "127.0.0.1:3"), ("PAYFERRY_PAYMENTS__SHARDS", "4"), ("OTHER__X", "1")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load(Some(path.path()), env).unwrap();
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.operator_listen.port(), 2);
    assert_eq!(config.payments.shards, 4);
    assert_eq!(config.server.public_url, None);
    assert_eq!(config.retention.events_days, Some(400));
    assert_eq!(config.database.url, "sqlite://payferry.db?mode=rwc");
}

#[test]
fn errors_name_location_key_and_expected_values() {
    assert_eq!(
        refused("[server]\n\nlisen = 1\n", &[]),
        "payferry.toml:3: there is no key `server.lisen`; expected one of drain_secs, environment, \
         listen, operator_listen, public_url, terms_file, trusted_proxies"
    );
    assert_eq!(
        refused("[server]\nlisten = \"localhost\"\n", &[]),
        "payferry.toml:2: `server.listen` is \"localhost\", expected an address and a port, such as \"127.0.0.1:8080\""
    );
    assert_eq!(
        refused("", &[("PAYFERRY_PAYMENTS__SHARDS", "7")]),
        "PAYFERRY_PAYMENTS__SHARDS: `payments.shards` is 7, expected a number that divides 256, such as 16"
    );
    assert_eq!(
        refused("[screening]\ntimeout_ms = \"soon\"", &[]),
        "payferry.toml:2: `screening.timeout_ms` is \"soon\", expected a whole number above zero"
    );
    for secs in ["301", "-1"] {
        assert_eq!(
            refused(&format!("[server]\ndrain_secs = {secs}"), &[]),
            format!(
                "payferry.toml:2: `server.drain_secs` is {secs}, expected a whole number of seconds up to 300, or 0 for no drain"
            )
        );
    }
    assert_eq!(
        refused("[retention]\nevents_days = 29", &[]),
        "payferry.toml:2: `retention.events_days` is 29, expected at least 30 days, or 0 forever"
    );
    assert_eq!(
        refused("[retention]\nreplaced_documents_days = -1", &[]),
        "payferry.toml:2: `retention.replaced_documents_days` is -1, expected a number of days, or 0 forever"
    );
    assert!(refused("[server\n", &[]).starts_with("payferry.toml:1: not valid TOML: "));
    assert!(refused("", &[("PAYFERRY_NOWHERE__X", "7")]).contains("there is no key `nowhere.x`"));
    let secret = refused("[database]\nurl = \"mysql://user:hunter2@host/x\"", &[]);
    assert!(secret.contains("expected a path") && !secret.contains("hunter2"), "{secret}");
}

#[test]
fn trusted_proxies_replace_the_former_key() {
    let load = |file: &str, env: &[(&str, &str)]| {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, file).unwrap();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let config = Config::load(Some(path.path()), env).unwrap();
        (config.server.trusted_proxies(), config.warnings)
    };
    let listed =
        |networks: &[&str]| TrustedProxies::Networks(networks.iter().map(|network| network.parse().unwrap()).collect());
    assert_eq!(load("", &[]), (listed(&[]), Vec::new()));
    let file = "[server]\ntrusted_proxies = [\"10.0.0.1\", \"10.1.0.0/16\"]\n";
    assert_eq!(load(file, &[]), (listed(&["10.0.0.1", "10.1.0.0/16"]), Vec::new()));
    let from_env = load("", &[("PAYFERRY_SERVER__TRUSTED_PROXIES", "[\"::1\"]")]);
    assert_eq!(from_env, (listed(&["::1"]), Vec::new()));
    for (file, env, expected) in [
        ("[server]\nbehind_proxy = true\n", None, TrustedProxies::EveryPeer),
        ("", Some(("PAYFERRY_SERVER__BEHIND_PROXY", "true")), TrustedProxies::EveryPeer),
        ("[server]\nbehind_proxy = false\n", None, listed(&[])),
        ("[server]\nbehind_proxy = true\ntrusted_proxies = [\"::1\"]\n", None, listed(&["::1"])),
    ] {
        let (trusted, warnings) = load(file, env.as_slice());
        assert_eq!(trusted, expected, "{file} {env:?}");
        assert!(matches!(&warnings[..], [one] if one.contains("set `server.trusted_proxies`")), "{warnings:?}");
    }
    assert!(
        refused("[server]\nbehind_proxy = 1\n", &[]).contains("`server.behind_proxy` is 1, expected true or false")
    );
    assert!(refused("[server]\ntrusted_proxies = [\"nginx\"]\n", &[]).contains("a list of addresses and networks"));
}

#[test]
fn error_names_a_missing_file() {
    let error = Config::load(Some("/nowhere/payferry.toml".as_ref()), []).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/payferry.toml: cannot be read"), "{error}");
}

#[test]
fn databases_are_paths_or_urls() {
    assert_eq!(database_url("a/b.db").unwrap(), "sqlite://a/b.db?mode=rwc");
    assert_eq!(database_url("postgres://x/y").unwrap(), "postgres://x/y");
    assert_eq!(database_url("mysql://x/y"), None);
}

#[test]
fn chains_are_enabled_one_by_one() {
    let path = tempfile::NamedTempFile::new().unwrap();
    let file = "[contracts]\ntreasury = \"0x00000000000000000000000000000000000000aa\"\n[chains.base]\n\
                endpoints = [\"https://node.example/KEY\"]\nchain_id = 84532\nusdt = \"\"\nstart_block = 7\n\
                finality = [{ wait = 5 }]\nmax_fee_gwei = \"0.25\"\n";
    std::fs::write(&path, file).unwrap();
    let config = Config::load(Some(path.path()), []).unwrap();
    let on: Vec<Chain> = config.chains.iter().filter(|(_, chain)| chain.is_on()).map(|(name, _)| *name).collect();
    assert_eq!(on, [Chain::Base]);
    let base = &config.chains[&Chain::Base];
    assert_eq!(format!("{:?}", base.endpoints), "[node.example]", "the key in the URL is not shown");
    let spec = base.spec(Chain::Base, Address([9; 20]), &config.contracts);
    assert_eq!((spec.chain_id, spec.start_block, spec.tokens.len()), (84_532, Some(7), 1));
    assert_eq!(spec.finality, FinalityPolicy::flat(Finality::Blocks(5)));
    assert_eq!(spec.finality_least, spec.finality, "the default minimum is the chain's own finality");
    assert_eq!((spec.fees.max_fee_wei, spec.fees.priority_fee_min_wei), (250_000_000, 1_000_000));
    assert_eq!(spec.treasury.to_string(), "0x00000000000000000000000000000000000000aa");
}

#[test]
fn defaults_equal_the_actor_defaults() {
    assert_eq!(Config::default().limits.ceilings(), Ceilings::default());
    assert_eq!(Config::default().auditors.auditors(), AuditorsConfig::default());
}

#[test]
fn passes_configured_audits_to_the_actors() {
    let config = Config::default().auditors;
    assert!(!config.auditors().treasury_kept);
    let kept = AuditorsSection { vaults_interval_ms: 0, treasury_kept: true, ..config }.auditors();
    assert_eq!((kept.vaults_interval, kept.treasury_kept), (None, true));
}

#[test]
fn chain_defaults_equal_the_actor_defaults() {
    let config = Config::default();
    for chain in Chain::ALL {
        let section = &config.chains[&chain];
        assert!(!section.is_on());
        let spec = section.spec(chain, Address([9; 20]), &config.contracts);
        let own = ChainSpec::new(chain, spec.contract, spec.treasury, spec.tokens.clone());
        let own = ChainSpec { lookalikes: spec.lookalikes.clone(), ..own };
        assert_eq!(format!("{spec:?}"), format!("{own:?}"));
    }
}

#[test]
fn chain_errors_describe_the_expected_values() {
    let of = |line: &str| refused(&format!("[chains.base]\n{line}\n"), &[]);
    let bands = of("finality = [{ below = \"5\", wait = 2 }]");
    assert!(bands.contains("`chains.base.finality`") && bands.contains("one band or three"), "{bands}");
    assert!(of("finality_least = 2").contains("the bands of `finality`, or an empty list"));
    let limit = refused("[limits]\nsend_max = 5000\n", &[]);
    assert!(limit.contains("`limits.send_max` is 5000, expected an amount of tokens as text"), "{limit}");
    let endpoints = of("endpoints = [\"ftp://node.example/hunter2\"]");
    assert!(endpoints.contains("a list of http or https URLs") && !endpoints.contains("hunter2"), "{endpoints}");
    let remote = refused("[signer.sender]\nremote_url = \"ftp://user:hunter2@signer.example\"\n", &[]);
    assert!(remote.contains("an http or https URL, or nothing") && !remote.contains("hunter2"), "{remote}");
    assert!(of("usdc = \"0x12\"").ends_with("expected an address, 0x and 40 hexadecimal digits, or nothing"));
    assert!(of("max_fee_gwei = \"0.0000000001\"").contains("gwei as text"));
    assert!(of("start_block = \"soon\"").contains("\"latest\" or a block's number"));
    assert!(refused("[chains.doge]\nendpoints = []\n", &[]).contains("there is no key `chains.doge"));
}

#[test]
fn example_files_are_valid() {
    for name in ["mainnet", "testnet"] {
        let path = format!("{}/docs/src/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let config = Config::load(Some(path.as_ref()), []).unwrap();
        assert!(config.chains.values().all(ChainSection::is_on), "{name}");
    }
}

#[test]
fn retired_keys_cause_a_warning_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("payferry.toml");
    std::fs::write(&file, "[payments]\nshards = 8\nbookkeeping = false\n").unwrap();
    let env = [("PAYFERRY_PAYMENTS__BOOKKEEPING".to_owned(), "false".to_owned())];
    let config = Config::load(Some(&file), env).unwrap();
    assert_eq!(config.payments.shards, 8);
    let [in_file, in_env] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(in_file.contains("payferry.toml:3: `payments.bookkeeping`"), "{in_file}");
    assert!(in_env.starts_with("PAYFERRY_PAYMENTS__BOOKKEEPING: "), "{in_env}");
}
