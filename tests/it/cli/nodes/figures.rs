//! Cost of a payment on two nodes, compared with one node. Rounds alternate, each with a new database and a new chain. Chain, payers
//! and webhook receiver are in the process of the test, which shares the processors.

use std::time::Instant;

use payferry_harness::short_or_long;

use super::*;

/// Clients that initiate and pay at the same time.
const CLIENTS: usize = 16;

/// Figures of one round.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Processor time of all nodes for one payment.
    cpu: Duration,
    /// Complete payments per second.
    rate: f64,
}

async fn round(count: usize, payments: usize) -> Round {
    let fixture = Fixture::measured().await;
    let mut nodes = fixture.nodes(count).await;
    let psp = fixture.psp(&nodes.api_url()).await;
    let operator = fixture.operator(nodes.node(0).operator_url());
    // A node hands over its surplus when the nodes have been the same for 30 s.
    let balanced = async || {
        let mut owned = BTreeMap::<Option<String>, usize>::new();
        for (owner, _) in all_leases(&operator).await.into_values() {
            *owned.entry(owner).or_default() += 1;
        }
        let is_balanced =
            owned.len() == count && owned.values().max() <= owned.values().min().map(|min| min + 4).as_ref();
        expect(format!("{owned:?}"), |_| is_balanced)
    };
    if count > 1 {
        eventually("the nodes have equal shares", balanced).await;
    }
    fixture.settle(&psp, "first").await;
    let connection = fixture.outside.database.connect().await;
    let cpu = |nodes: &mut Nodes<'_>| (0..count).map(|number| nodes.node(number).process.cpu_time()).sum::<Duration>();
    let (cpu_before, since) = (cpu(&mut nodes), Instant::now());
    let payers = Payers::new(&fixture.outside.chains[0], &fixture.outside.accounts);
    let clients = (0..CLIENTS).map(async |client| {
        for number in (client..payments).step_by(CLIENTS) {
            let payment = initiate(&psp, &number.to_string()).await;
            let wallet = payment["intermediary_wallet"].as_str().unwrap().parse().unwrap();
            payers.transfer(Payer::Clean, Token::Usdc, wallet, 10_000_000).await;
        }
    });
    join_all(clients).await;
    let open = async || {
        let open = "SELECT count(*) FROM payments WHERE status <> 'settled'";
        let undelivered = "SELECT count(*) FROM deliveries WHERE status <> 'delivered'";
        number(&connection, open).await + number(&connection, undelivered).await
    };
    eventually("every payment is complete", async || expect(open().await, |open| *open == 0)).await;
    let took = since.elapsed();
    let total = f64::from(u32::try_from(payments).unwrap());
    let figures =
        Round { cpu: cpu(&mut nodes).saturating_sub(cpu_before).div_f64(total), rate: total / took.as_secs_f64() };
    println!("{count} nodes: {figures:?}");
    nodes.stop();
    figures
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn payment_on_two_nodes_costs_little_more_than_on_one() {
    let payments = short_or_long(1_500, 3_000);
    let (mut cpu, mut rate) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let [one, two] = [round(1, payments).await, round(2, payments).await];
        cpu.push(two.cpu.div_duration_f64(one.cpu));
        rate.push(two.rate / one.rate);
    }
    println!("two nodes to one: CPU per payment {cpu:.2?}, complete payments per second {rate:.2?}");
    // A ratio that holds in two of three rounds holds.
    cpu.sort_by(f64::total_cmp);
    rate.sort_by(f64::total_cmp);
    assert!(cpu[1] <= 1.25, "{cpu:?}");
    assert!(rate[1] >= 0.85, "{rate:?}");
}
