//! Property tests: any commands in any order.

use proptest::prelude::*;

use super::*;
use crate::customer::missing;

fn verdicts() -> impl Strategy<Value = IdentityVerdict> {
    prop_oneof![Just(IdentityVerdict::Approved), "[a-z]{1,8}".prop_map(|reason| rejected(&reason))]
}

/// Generates commands. Check ids are placeholders for new checks, or refer to earlier checks.
fn commands() -> impl Strategy<Value = Command> {
    let kinds = prop::sample::subsequence(DocumentKind::ALL.to_vec(), 0..=DocumentKind::ALL.len());
    let old = (0_u128..12).prop_map(check);
    prop_oneof![
        2 => Just(Command::AcceptTerms),
        3 => kinds.prop_map(|kinds| Command::AddDocuments(kinds.into_iter().collect())),
        3 => Just(Command::RequestCheck(check(0))),
        6 => (old.clone(), verdicts()).prop_map(|(check, verdict)| Command::ConcludeCheck { check, verdict }),
        1 => old.prop_map(Command::LapseCheck),
        2 => Just(Command::ChangePhone(check(0))),
        1 => Just(Command::SetDetails),
        2 => Just(Command::ReplaceWallet(check(0))),
        1 => verdicts().prop_map(Command::Decide),
        1 => prop::bool::weighted(0.2).prop_map(|ends| if ends { Command::Deactivate } else { Command::SetDetails }),
    ]
}

/// Replaces the placeholder of a new check by a unique id.
fn numbered(command: Command, number: u128) -> Command {
    let check = check(number);
    match command {
        Command::RequestCheck(_) => Command::RequestCheck(check),
        Command::ChangePhone(_) => Command::ChangePhone(check),
        Command::ReplaceWallet(_) => Command::ReplaceWallet(check),
        other => other,
    }
}

proptest! {
    #[test]
    fn random_commands_keep_every_invariant(business: bool, commands in prop::collection::vec(commands(), 0..40)) {
        let kind = if business { CustomerKind::Business } else { CustomerKind::Individual };
        let mut customer = customer(kind);
        for (number, command) in commands.into_iter().enumerate() {
            let command = match numbered(command, number as u128) {
                // The HTTP layer refuses documents of the other kind.
                Command::AddDocuments(all) => Command::AddDocuments(all.iter().filter(|one| kind.takes(*one)).collect()),
                other => other,
            };
            let after = match transition(&customer, &command, NOW) {
                Ok(Some(after)) => after.customer,
                Ok(None) | Err(TransitionError::Rejected(_)) => continue,
                Err(TransitionError::Violated(violated)) => {
                    return Err(TestCaseError::fail(format!("{violated} by {command:?}: {customer:?}")));
                }
            };
            prop_assert_eq!(after.version, customer.version + 1);
            // Final states do not change.
            prop_assert!(customer.is_active, "{:?} changed a deactivated customer", command);
            prop_assert!(customer.tos_accepted_at.is_none() || after.tos_accepted_at == customer.tos_accepted_at);
            prop_assert!(customer.documents.iter().all(|document| after.documents.contains(document)));
            // Only a verdict clears a customer, and only after it accepted the terms.
            if after.is_cleared() && !customer.is_cleared() {
                prop_assert!(after.tos_accepted_at.is_some());
                let by_verdict = matches!(&command, Command::ConcludeCheck { verdict: IdentityVerdict::Approved, .. }
                    | Command::Decide(IdentityVerdict::Approved));
                prop_assert!(by_verdict, "cleared by {:?}", command);
                if matches!(command, Command::ConcludeCheck { .. }) && customer.before_update.is_none() {
                    prop_assert_eq!(missing(&customer), []);
                }
            }
            // A result counts only for the current check and the current data.
            if let Command::ConcludeCheck { check, .. } = &command {
                let current = customer.check.unwrap();
                prop_assert_eq!((current.id, current.revision), (*check, customer.revision));
            }
            // A repeated command changes nothing or is rejected, unless it is a new request.
            if let Command::AcceptTerms | Command::ConcludeCheck { .. } | Command::LapseCheck(_)
                | Command::Deactivate = &command
            {
                prop_assert_eq!(transition(&after, &command, NOW), Ok(None));
            }
            customer = after;
        }
    }
}
