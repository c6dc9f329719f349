//! Tests of the text form of faults.

use super::parse::conduct;
use super::*;
use payferry_testkit::audit::reception::Conduct;

const ALL: &str = "kill@6s; kill 3@5s-25s; reorg base 8@9s; rpc-errors 0.1@12s-20s; receiver-fail 0.5@10s-20s; \
    receiver-slow 2s@10s-20s";

#[test]
fn parses_and_formats_faults() {
    let plan: FaultPlan = ALL.parse().unwrap();
    assert_eq!(plan.to_string(), ALL);
    assert!(plan.kills() && plan.check(Duration::from_secs(26)).is_ok());
    assert_eq!(plan.0[1].begins(), [5, 15, 25].map(Duration::from_secs));
    assert_eq!(plan.0[0].begins(), [Duration::from_secs(6)]);
    assert!(!"reorg base 8@9s".parse::<FaultPlan>().unwrap().kills());
}

#[test]
fn rejects_faults_that_it_cannot_inject() {
    for (bad, says) in [
        ("", "it has no @time"),
        ("kill", "it has no @time; write it as kill@6s"),
        ("flood@6s", "`flood` is no fault; write it as kill@6s"),
        ("kill@soon", "`soon` is no time such as 6s"),
        ("kill@6s-9s", "it has one time and no end"),
        ("kill 3@6s", "it needs an end"),
        ("kill 0@6s-9s", "`0` is no whole number from 1 to 100"),
        ("reorg base@9s", "`reorg base` is no fault"),
        ("reorg solana 8@9s", "`solana` is not a chain (base, polygon, arbitrum)"),
        ("reorg base 2000@9s", "`2000` is no whole number from 1 to 1000"),
        ("rpc-errors 0.1@12s", "it needs an end"),
        ("rpc-errors 1.5@12s-20s", "`1.5` is no share above 0 and at most 1"),
        ("rpc-errors 0@12s-20s", "`0` is no share"),
        ("rpc-errors NaN@12s-20s", "`NaN` is no share"),
        ("receiver-fail 0.5@20s-10s", "it ends before it begins"),
        ("receiver-slow 5s@10s-20s", "`5s` is no delay such as 500ms, at most 4 s"),
        ("kill@6s; flood@9s", "`flood` is no fault"),
    ] {
        let refused = bad.parse::<FaultPlan>().unwrap_err();
        assert!(refused.contains(says), "{bad}: {refused}");
    }
    let check =
        |text: &str| text.parse::<FaultPlan>().unwrap().check(Duration::from_secs(20)).map_err(|e| e.to_string());
    let late = check("kill@20s").unwrap_err();
    assert!(late.starts_with("--fault: `kill@20s` ends after the last arrival, which is at 20.0 s"), "{late}");
    assert!(check("rpc-errors 0.1@12s-21s").unwrap_err().contains("ends after the last arrival"));
    let both = check("receiver-fail 0.1@1s-9s; receiver-fail 0.2@8s-10s").unwrap_err();
    assert_eq!(both, "--fault: `receiver-fail 0.1@1s-9s` and `receiver-fail 0.2@8s-10s` overlap");
    assert_eq!(check("receiver-fail 0.1@1s-9s; receiver-slow 1s@1s-9s; receiver-fail 0.2@9s-10s"), Ok(()));
}

#[test]
fn parses_the_behaviour_of_the_receiver() {
    assert_eq!(conduct("slow=2s, fail=0.25"), Ok(Conduct { slow: Duration::from_secs(2), fail: 0.25 }));
    assert_eq!(conduct("fail=1"), Ok(Conduct { slow: Duration::ZERO, fail: 1.0 }));
    for (bad, says) in [
        ("", "not written as slow=2s or fail=0.1"),
        ("slow", "not written as"),
        ("late=2s", "`late` is unknown; known are slow, fail"),
        ("fail=2", "no share above 0 and at most 1"),
        ("slow=9s", "at most 4 s"),
        ("fail=0.1,fail=0.2", "named twice"),
    ] {
        let refused = conduct(bad).unwrap_err();
        assert!(refused.contains(says), "{bad}: {refused}");
    }
}

#[test]
fn names_faults_in_words() {
    let plan: FaultPlan = ALL.parse().unwrap();
    let killed = |number| InjectedFault { fault: "kill@6s".to_owned(), at_secs: 6.0, until_secs: 7.0, number };
    assert_eq!(
        in_words(&[killed(1), killed(2)], &plan),
        "killed 2 times, base reorganised by 8 blocks, 10 % of the RPC calls failed for 8 s, 50 % of the webhooks were \
         refused for 10 s, the receiver took 2s for 10 s"
    );
    assert_eq!(in_words(&[], &FaultPlan::default()), "");
}
