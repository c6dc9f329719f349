//! TLS between the service and PostgreSQL, on the server of `tests/with-postgres`: its certificate is for `localhost`.

use payferry_entities::Database;
use payferry_harness::database::TestDatabase;
use sea_orm::{ConnectionTrait, DbBackend, DbErr, Statement};

/// Variable with the file of the server's root certificate.
const ROOT: &str = "PAYFERRY_TEST_POSTGRES_ROOT";

/// Opens the database and returns true if its connections are encrypted.
async fn opened(url: &str) -> Result<bool, DbErr> {
    let database = Database::open(url).await?;
    let statement = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let mut encrypted = Vec::new();
    for pool in [database.writer(), database.reader(), database.api_pool().reader()] {
        let row = pool.query_one_raw(Statement::from_string(DbBackend::Postgres, statement)).await?.unwrap();
        encrypted.push(row.try_get_by_index::<bool>(0)?);
    }
    database.close().await?;
    assert!(encrypted.iter().all(|one| *one == encrypted[0]), "{encrypted:?}");
    Ok(encrypted[0])
}

#[tokio::test]
async fn every_sslmode_encrypts_and_verifies_what_it_says() {
    let root =
        std::env::var(ROOT).unwrap_or_else(|_| panic!("run this test with tests/with-postgres, which sets {ROOT}"));
    let database = TestDatabase::postgres().await;
    let named = database.url().replace("127.0.0.1", "localhost");
    let addressed = database.url();
    let roots = format!("&sslrootcert={root}");
    // Given a server with a certificate for `localhost`, when the service connects: encrypted, or the error.
    for (url, mode, roots, expected) in [
        (addressed, "disable", "", Ok(false)),
        (addressed, "allow", "", Ok(false)),
        (addressed, "prefer", "", Ok(true)),
        (addressed, "require", "", Ok(true)),
        (addressed, "verify-ca", roots.as_str(), Ok(true)),
        (addressed, "verify-ca", "", Err("UnknownIssuer")),
        (addressed, "verify-full", &roots, Err("certificate not valid for name")),
        (&named, "verify-full", "", Err("UnknownIssuer")),
        (&named, "verify-full", &roots, Ok(true)),
    ] {
        let case = format!("{url} {mode} {roots}");
        match (opened(&format!("{url}?sslmode={mode}{roots}")).await, expected) {
            (Ok(encrypted), Ok(expected)) => assert_eq!(encrypted, expected, "{case}"),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{case}: {error}"),
            (outcome, expected) => panic!("{case}: {outcome:?} instead of {expected:?}"),
        }
    }
    // `allow` encrypts if the server refuses anything else.
    let strict = database.url().replace("postgres@", "tls_only@");
    assert!(opened(&format!("{strict}?sslmode=allow")).await.unwrap());
    let refused = opened(&format!("{strict}?sslmode=disable")).await.unwrap_err().to_string();
    assert!(refused.contains("no encryption"), "{refused}");
}
