//! How many new payments are admitted, as a pure state machine.
//!
//! As in CoDel (RFC 8289), a long queue is no overload if it soon empties again: one block makes hundreds of payments final at
//! once. Overload is a delay above a target during a whole interval. Then admission closes, so that accepted payments are
//! completed first, until the delay is below the target.
//!
//! A payment causes most of its work seconds after it was admitted, when its transfer is final. Closing alone would come too late
//! and last too long. So a rate limits admission while it is open. The rate decreases each time admission closes, and increases
//! while it refuses payments without a delay. After some time without a refusal there is no limit.

use std::time::Duration;

/// Interval of samples.
pub(super) const SAMPLE: Duration = Duration::from_millis(100);
/// Delay above which the service may be overloaded. A debug build is slower.
pub(super) const DELAY_TARGET: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 30 });
/// Samples in a row above the target that mean overload.
const OVERLOADED_SAMPLES: u32 = 5;
/// Samples in a row without a refusal after which there is no limit.
const CALM_SAMPLES: u32 = 100;
/// Factor of the rate when the service becomes overloaded without a limit, relative to what it admitted.
const FIRST_DECREASE: f64 = 0.5;
/// Factor of the rate when the service becomes overloaded with a limit.
const DECREASE: f64 = 0.85;
/// Increase of the rate per second in which it refused payments.
const INCREASE: f64 = 0.02;
/// Lowest rate, in payments per second. It increases from here.
const RATE_MIN: f64 = 5.0;
/// Share of the newest sample in the mean rate of admission.
const RECENT_SHARE: f64 = 0.2;

/// State of admission.
#[derive(Debug, Clone, Default)]
pub(super) struct Controller {
    /// Payments per second; `None`: no limit.
    rate: Option<f64>,
    is_closed: bool,
    /// Payments that may be admitted now.
    tokens: f64,
    /// Samples in a row with a delay above the target.
    above: u32,
    /// Samples in a row without a refusal.
    calm: u32,
    /// Payments admitted and refused since the last sample.
    admitted: u32,
    refused: u32,
    /// Mean rate of admission over about half a second, in payments per second.
    recent: f64,
}

impl Controller {
    /// Admits a new payment, or refuses it.
    pub(super) fn admit(&mut self) -> bool {
        let is_admitted = !self.is_closed && (self.rate.is_none() || self.tokens >= 1.0);
        if is_admitted {
            self.tokens -= 1.0;
            self.admitted += 1;
        } else {
            self.refused += 1;
        }
        is_admitted
    }

    /// Takes the longest delay of a queue during the last [`SAMPLE`].
    pub(super) fn sampled(&mut self, delay: Duration) {
        let seconds = SAMPLE.as_secs_f64();
        let (admitted, refused) = (std::mem::take(&mut self.admitted), std::mem::take(&mut self.refused));
        self.recent += (f64::from(admitted) / seconds - self.recent) * RECENT_SHARE;
        self.above = if delay > DELAY_TARGET { self.above + 1 } else { 0 };
        self.calm = if refused > 0 { 0 } else { self.calm + 1 };
        match self.above {
            0 => self.is_closed = false,
            OVERLOADED_SAMPLES => {
                let rate = self.rate.map_or(self.recent * FIRST_DECREASE, |rate| rate * DECREASE);
                (self.rate, self.is_closed) = (Some(rate.max(RATE_MIN)), true);
            }
            _ => {}
        }
        if self.calm >= CALM_SAMPLES && !self.is_closed {
            self.rate = None;
        }
        if let Some(rate) = &mut self.rate {
            if refused > 0 && self.above == 0 {
                *rate *= 1.0 + INCREASE * seconds;
            }
            // A sample may use what the one before has left.
            let share = *rate * seconds;
            self.tokens = (self.tokens.max(0.0) + share).min((2.0 * share).max(1.0));
        }
    }

    /// Payments that are admitted per second at most: 0 while admission is closed; `None`: no limit.
    pub(super) fn limit(&self) -> Option<f64> {
        if self.is_closed { Some(0.0) } else { self.rate }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const ABOVE: Duration = DELAY_TARGET.saturating_add(Duration::from_millis(1));

    fn offered(controller: &mut Controller, payments: u32) -> u32 {
        (0..payments).filter(|_| controller.admit()).count().try_into().unwrap()
    }

    #[test]
    fn without_a_delay_everything_is_admitted() {
        let mut controller = Controller::default();
        for _ in 0..50 {
            assert_eq!(offered(&mut controller, 1_000), 1_000);
            controller.sampled(DELAY_TARGET);
        }
        assert_eq!(controller.limit(), None);
    }

    #[test]
    fn a_queue_that_empties_within_the_interval_is_no_overload() {
        let mut controller = Controller::default();
        for sample in 0..50 {
            assert_eq!(offered(&mut controller, 100), 100);
            controller.sampled(if sample % 5 == 4 { Duration::ZERO } else { ABOVE * 10 });
        }
        assert_eq!(controller.limit(), None);
    }

    #[test]
    fn a_lasting_delay_closes_admission_until_it_is_over_and_then_limits_the_rate() {
        let mut controller = Controller::default();
        for _ in 0..20 {
            offered(&mut controller, 100);
            controller.sampled(Duration::ZERO);
        }
        (0..OVERLOADED_SAMPLES).for_each(|_| controller.sampled(ABOVE));
        assert_eq!((controller.limit(), offered(&mut controller, 10)), (Some(0.0), 0));
        controller.sampled(ABOVE);
        assert_eq!(offered(&mut controller, 10), 0, "until the delay is over");
        controller.sampled(Duration::ZERO);
        let limit = controller.limit().unwrap();
        assert!((100.0..500.0).contains(&limit), "half of what was admitted at last: {limit}");
        let admitted = offered(&mut controller, 1_000);
        assert!((10..=50).contains(&admitted), "the share of one sample: {admitted}");
        // Refusals without a delay increase the limit.
        (0..10).for_each(|_| {
            offered(&mut controller, 1_000);
            controller.sampled(Duration::ZERO);
        });
        assert!(controller.limit().unwrap() > limit);
        // Without refusals there is no limit after a while.
        (0..=CALM_SAMPLES).for_each(|_| controller.sampled(Duration::ZERO));
        assert_eq!(controller.limit(), None);
    }

    /// A service with this capacity, in which a tenth of a payment's work is due at once, and the rest after two seconds.
    #[test]
    fn overloaded_service_completes_nearly_what_it_can() {
        for (capacity, offered_factor) in [(50.0, 2.0), (300.0, 2.0), (300.0, 3.0), (300.0, 10.0), (2_000.0, 3.0)] {
            let (mut controller, seconds) = (Controller::default(), SAMPLE.as_secs_f64());
            let mut later: VecDeque<f64> = std::iter::repeat_n(0.0, 20).collect();
            let (mut queued, mut done, mut longest) = (0.0_f64, 0.0, 0.0_f64);
            for sample in 0..1_200 {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
                let admitted = f64::from(offered(&mut controller, (capacity * offered_factor * seconds) as u32));
                later.push_back(admitted * 0.9);
                queued += admitted * 0.1 + later.pop_front().unwrap();
                let worked = queued.min(capacity * seconds);
                queued -= worked;
                if sample >= 100 {
                    (done, longest) = (done + worked, longest.max(queued / capacity));
                }
                controller.sampled(Duration::from_secs_f64(queued / capacity));
            }
            let share = done / (capacity * seconds * 1_100.0);
            assert!(share > 0.9, "{capacity}/s, {offered_factor} times: {share}");
            assert!(
                longest < if cfg!(debug_assertions) { 5.0 } else { 1.0 },
                "{capacity}/s, {offered_factor} times: {longest} s"
            );
        }
    }
}
