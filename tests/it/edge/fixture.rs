//! The binary with the limits of production, and a client that measures it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::Chain;
use payferry_harness::database::TestDatabase;
use payferry_harness::deployment::{Accounts, Deployment};
use payferry_harness::install_tls;
use payferry_harness::node::Node;
use payferry_harness::process::{Binary, Folder, Served};
use reqwest::{Client, StatusCode};
use tokio_util::sync::CancellationToken;

const BLOCK_TIME: Duration = Duration::from_secs(1);
/// Pause between two requests of a measured client.
const PACE: Duration = Duration::from_millis(2);
/// States of a connection that its own side has not closed: established, and closed by the other side only.
const OPEN_STATES: [&str; 2] = ["01", "08"];
/// The settings of a test that production allows by name only.
const UNSAFE: [&str; 6] =
    ["bare_key_file", "readable_secrets", "public_url", "one_endpoint", "http_endpoint", "no_synchronous_standby"];

/// A service with the limits of production, in a process of its own.
pub struct Production {
    pub served: Served,
    /// API key of a PSP.
    pub key: String,
    /// Token of the operator.
    pub token: String,
    _database: TestDatabase,
    _temp: tempfile::TempDir,
    _chain: Deployment,
}

impl Production {
    pub async fn start() -> Self {
        install_tls();
        rlimit::increase_nofile_limit(u64::MAX).unwrap();
        let (accounts, temp) = (Arc::new(Accounts::known(1)), tempfile::tempdir().unwrap());
        let node = Node::devchain(Chain::Base.default_id(), BLOCK_TIME).await;
        let chain = Deployment::new(Chain::Base, node, &accounts).await;
        let database = TestDatabase::create().await;
        let mut folder = Folder::new(temp.path(), database.url(), std::slice::from_ref(&chain), &accounts, [0, 0]);
        folder.settings["server"]["environment"] = "production".into();
        let allow: toml::Value = UNSAFE.map(toml::Value::from).to_vec().into();
        folder.settings.insert("unsafe".to_owned(), toml::Table::from_iter([("allow".to_owned(), allow)]).into());
        folder.write();
        let token = folder.operator_token.clone();
        let start = move || {
            let binary = Binary::at(env!("CARGO_BIN_EXE_payferry"));
            let (_, key) = binary.make_psp(&folder, "Northern Pay");
            (binary.serve(&folder), key)
        };
        let (served, key) = tokio::task::spawn_blocking(start).await.unwrap();
        Self { served, key, token, _database: database, _temp: temp, _chain: chain }
    }

    /// Address of the public listener.
    pub fn api(&self) -> SocketAddr {
        address(self.served.api_url())
    }

    /// Address of the operator's listener.
    pub fn operator(&self) -> SocketAddr {
        address(self.served.operator_url())
    }

    /// Resident memory of the process, in KiB.
    pub fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.served.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Connections of the public listener that the service has not closed, as the kernel lists them: with addresses, state,
    /// and the sizes of both queues.
    pub fn connections(&self) -> Vec<String> {
        let SocketAddr::V4(api) = self.api() else { panic!("the listener has an IPv4 address") };
        // The address in full: a client of another test may have the same port.
        let own = format!("{:08X}:{:04X}", u32::from_ne_bytes(api.ip().octets()), api.port());
        let sockets = std::fs::read_to_string(format!("/proc/{}/net/tcp", self.served.process.id())).unwrap();
        let is_open = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1] == own && OPEN_STATES.contains(&fields[3])
        };
        sockets.lines().skip(1).filter(is_open).map(str::to_owned).collect()
    }

    /// Sends requests from this address, one after the other, until `stop`.
    pub async fn measure(&self, from: Ipv4Addr, url: &str, bearer: &str, stop: CancellationToken) -> Measured {
        let client = Client::builder().local_address(Some(from.into())).build().unwrap();
        let (mut times, mut statuses) = (Vec::new(), Vec::new());
        while !stop.is_cancelled() {
            let began = Instant::now();
            let response = client.get(url).bearer_auth(bearer).send().await.unwrap();
            statuses.push(response.status());
            response.bytes().await.unwrap();
            times.push(began.elapsed());
            tokio::time::sleep(PACE).await;
        }
        times.sort_unstable();
        Measured { times, statuses }
    }

    /// Like [`Self::measure`], for as long as `attack` runs.
    pub async fn measure_during(
        &self,
        from: Ipv4Addr,
        url: &str,
        bearer: &str,
        attack: impl Future<Output = ()>,
    ) -> Measured {
        let stop = CancellationToken::new();
        let attack = async {
            attack.await;
            stop.cancel();
        };
        tokio::join!(self.measure(from, url, bearer, stop.clone()), attack).0
    }
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

/// Times and statuses of a client's requests.
#[derive(Default)]
pub struct Measured {
    /// In ascending order.
    times: Vec<Duration>,
    statuses: Vec<StatusCode>,
}

impl Measured {
    /// Adds the requests of another measurement.
    pub fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.times.sort_unstable();
        self.statuses.extend(other.statuses);
    }

    pub fn p99(&self) -> Duration {
        self.times[self.times.len() * 99 / 100]
    }

    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// Asserts that every request succeeded.
    pub fn assert_all_ok(&self, what: &str) {
        let failed: Vec<_> = self.statuses.iter().filter(|status| !status.is_success()).collect();
        assert!(failed.is_empty(), "{what}: {failed:?}");
    }
}
