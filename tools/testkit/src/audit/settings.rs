//! Settings of the PSP that affect how its payments end.
//!
//! Every settlement is compared with the fee. A run refuses settings that change the end of a payment in another way
//! than the interface's table says (`expect`), because the load tester would have to decide as the service does.

use std::collections::BTreeMap;

use crate::psp::{AMOUNTS_BELOW, Psp};
use crate::wire::{Amount, Chain, PspId};
use serde::Deserialize;

use super::behaviour::DIFFERENCE;
use super::expect;

/// Settings of a PSP.
#[derive(Debug, Clone, Deserialize)]
pub struct Settings {
    /// The PSP.
    #[serde(rename = "id")]
    pub psp_id: PspId,
    /// The treasury's share of each settlement, in basis points.
    pub fee_bps: u16,
    tolerance: String,
    tolerance_bps: u16,
    overpayment_tolerance: String,
    overpayment_tolerance_bps: u16,
    overpayment: String,
    require_customer: bool,
    event_families: String,
    finality: BTreeMap<Chain, Finality>,
}

#[derive(Debug, Clone, Deserialize)]
struct Finality {
    is_default: bool,
}

/// Reads the settings of the PSP.
pub async fn settings(psp: &Psp) -> anyhow::Result<Settings> {
    #[derive(Deserialize)]
    struct SettingsView {
        settings: Settings,
    }
    let view: SettingsView = psp.get("/api/v1/settings").await?;
    Ok(view.settings)
}

impl Settings {
    /// Returns the settings that the load tester does not support, in words.
    pub fn unsupported(&self) -> Vec<String> {
        let Self { overpayment, event_families, .. } = self;
        let mut found = Vec::new();
        // A payment with one token less must be underpaid, and one with one token more overpaid, whatever the amount.
        for (name, amount, bps) in [
            ("tolerance", &self.tolerance, self.tolerance_bps),
            ("overpayment_tolerance", &self.overpayment_tolerance, self.overpayment_tolerance_bps),
        ] {
            if !amount.parse::<Amount>().is_ok_and(|amount| amount < DIFFERENCE) {
                found.push(format!("{name} is {amount}, not below {DIFFERENCE}"));
            }
            if expect::treasury_fee(AMOUNTS_BELOW, bps) >= DIFFERENCE {
                found.push(format!("{name}_bps is {bps}, not below {DIFFERENCE} of each payment"));
            }
        }
        if overpayment != "hold" {
            found.push(format!("overpayment is {overpayment}, not hold"));
        }
        if self.require_customer {
            found.push("require_customer is true, and payments of the load have none".to_owned());
        }
        if event_families != "both" {
            found.push(format!("event_families is {event_families}, not both"));
        }
        let own = self.finality.iter().filter(|(_, finality)| !finality.is_default);
        found.extend(own.map(|(chain, _)| format!("finality on {chain} is set by the PSP and may take any time")));
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the unsupported settings of a PSP with this change.
    fn unsupported(changed: &Value) -> Vec<String> {
        let mut settings = json!({
            "tolerance": "0.00", "tolerance_bps": 0, "overpayment_tolerance": "0.01", "overpayment_tolerance_bps": 10,
            "overpayment": "hold", "refund_to_sender": false,
            "id": PspId::generate().to_string(), "require_customer": false, "dust_floor": "0.001", "event_families": "both",
            "finality": {"base": {"tiers": [], "is_default": true, "least": []}}, "fee_bps": 100,
        });
        for (name, value) in changed.as_object().unwrap() {
            settings[name] = value.clone();
        }
        serde_json::from_value::<Settings>(settings).unwrap().unsupported()
    }

    #[test]
    fn refuses_settings_that_change_the_end_of_a_payment() {
        for judged in [
            json!({}),
            json!({"fee_bps": 0}),
            json!({"refund_to_sender": true}),
            json!({"dust_floor": "1.00"}),
            json!({"tolerance": "0.999999", "tolerance_bps": 95}),
        ] {
            assert_eq!(unsupported(&judged), Vec::<String>::new(), "{judged}");
        }
        for (changed, says) in [
            (json!({"tolerance": "1.00"}), "tolerance is 1.00, not below 1.00"),
            (json!({"tolerance": "much"}), "tolerance is much, not below 1.00"),
            (json!({"tolerance_bps": 96}), "tolerance_bps is 96, not below 1.00 of each payment"),
            (json!({"overpayment_tolerance": "1.00"}), "overpayment_tolerance is 1.00, not below 1.00"),
            (json!({"overpayment": "accept"}), "overpayment is accept, not hold"),
            (json!({"overpayment": "refund_excess"}), "overpayment is refund_excess, not hold"),
            (json!({"require_customer": true}), "require_customer is true, and payments of the load have none"),
            (json!({"event_families": "payin"}), "event_families is payin, not both"),
            (
                json!({"finality": {"base": {"is_default": false}}}),
                "finality on base is set by the PSP and may take any time",
            ),
        ] {
            assert_eq!(unsupported(&changed), [says]);
        }
        let several = unsupported(&json!({"overpayment": "accept", "event_families": "payment"}));
        assert_eq!(several.len(), 2, "{several:?}");
    }
}
