//! How many new payments are admitted, as a pure state machine.
//!
//! As in CoDel (RFC 8289), a long queue is no overload if it soon empties again: one block makes hundreds of payments final at
//! once. Overload is a delay above a target during a whole interval.
//!
//! Then a rate limits admission, and decreases as long as the overload lasts. A payment causes most of its work seconds after it
//! was admitted, when its transfer is final, so the next decrease waits for the effect of the one before. A long delay closes
//! admission: accepted payments are completed first. The rate increases while it refuses payments without a delay: fast to the
//! rate at which the service was last overloaded, slowly above it. After some time without a refusal there is no limit.

use std::time::Duration;

/// Interval of samples.
pub(super) const SAMPLE: Duration = Duration::from_millis(100);
/// Samples in a row above the target that mean overload.
const OVERLOADED_SAMPLES: u32 = 5;
/// Samples of an overload after which the rate decreases again, unless the queue is becoming shorter.
const AGAIN_SAMPLES: u32 = 20;
/// Load above which admission is closed; a load of 1 is a delay at its target.
const CLOSED_LOAD: f64 = 5.0;
/// Samples in a row without a refusal after which there is no limit.
const CALM_SAMPLES: u32 = 100;
/// Share of the load [`AGAIN_SAMPLES`] before below which the queue is becoming shorter: the rate is low enough.
const SHORTER_SHARE: f64 = 0.8;
/// Factor of the rate when the service becomes overloaded and neither a rate nor a budget limited it, relative to what it
/// admitted.
const FIRST_DECREASE: f64 = 0.5;
/// Factor of the rate when the service becomes overloaded although a rate or a budget limited it.
const DECREASE: f64 = 0.85;
/// Increase of the rate per second in which it refused payments.
const INCREASE: f64 = 0.02;
/// The same while the rate is below [`KNOWN_SHARE`] of that at which the service was last overloaded.
const INCREASE_FAST: f64 = 0.1;
/// Share of the rate of the last overload up to which the service is known to manage.
const KNOWN_SHARE: f64 = 0.9;
/// Lowest rate, in payments per second. It increases from here.
const RATE_MIN: f64 = 10.0;
/// Share of the newest sample in the mean rate of admission.
const RECENT_SHARE: f64 = 0.2;

/// State of admission. At first, everything is admitted.
#[derive(Debug, Clone, Default)]
pub(super) struct Controller {
    /// Payments per second; `None`: no limit.
    rate: Option<f64>,
    /// Rate at which the service was last overloaded.
    overloaded_at: f64,
    is_closed: bool,
    /// Payments that may be admitted now.
    tokens: f64,
    /// Samples in a row with a delay above the target.
    above: u32,
    /// Load two seconds ago, when the rate decreased or the queue became shorter.
    load_before: f64,
    /// Samples in a row without a refusal.
    calm: u32,
    /// Payments admitted since the last sample.
    admitted: u32,
    /// Payments refused since the last sample.
    refused: u32,
    /// Mean rate of admission over about half a second before the last delay, in payments per second.
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

    /// Takes the load of the last [`SAMPLE`]: the delay of a queue relative to its target, the highest of all queues. `budget`:
    /// payments per second for which the processors have time, if that is known; it limits admission, too.
    pub(super) fn sampled(&mut self, load: f64, budget: Option<f64>) {
        let seconds = SAMPLE.as_secs_f64();
        let (admitted, refused) = (std::mem::take(&mut self.admitted), std::mem::take(&mut self.refused));
        self.above = if load > 1.0 { self.above + 1 } else { 0 };
        if self.above == 0 {
            self.recent += (f64::from(admitted) / seconds - self.recent) * RECENT_SHARE;
        }
        self.calm = if refused > 0 { 0 } else { self.calm + 1 };
        let overloaded_for = self.above.checked_sub(OVERLOADED_SAMPLES);
        self.is_closed = overloaded_for.is_some() && load > CLOSED_LOAD;
        if let Some(samples) = overloaded_for.filter(|samples| samples.is_multiple_of(AGAIN_SAMPLES)) {
            if samples == 0 || load >= self.load_before * SHORTER_SHARE {
                let rate = match (self.rate, budget) {
                    (Some(rate), _) => rate * DECREASE,
                    (None, Some(budget)) => self.recent.min(budget) * DECREASE,
                    (None, None) => self.recent * FIRST_DECREASE,
                };
                self.overloaded_at = self.rate.unwrap_or(self.recent);
                self.rate = Some(rate.max(RATE_MIN));
            }
            self.load_before = load;
        }
        if self.calm >= CALM_SAMPLES && !self.is_closed {
            self.rate = None;
        }
        if let Some(rate) = &mut self.rate {
            if refused > 0 && self.above == 0 {
                let is_known = *rate < self.overloaded_at * KNOWN_SHARE;
                *rate *= 1.0 + if is_known { INCREASE_FAST } else { INCREASE } * seconds;
            }
            // A sample may use what the one before has left. One payment may always be admitted after a sample without any.
            let share = *rate * seconds;
            let least = if admitted == 0 { 1.0 } else { 0.0 };
            self.tokens = (self.tokens.max(0.0) + share).clamp(least, (2.0 * share).max(1.0));
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

    const ABOVE: f64 = 1.1;

    fn offered(controller: &mut Controller, payments: u32) -> u32 {
        (0..payments).filter(|_| controller.admit()).count().try_into().unwrap()
    }

    #[test]
    fn without_a_delay_everything_is_admitted() {
        let mut controller = Controller::default();
        for _ in 0..50 {
            assert_eq!(offered(&mut controller, 1_000), 1_000);
            controller.sampled(1.0, None);
        }
        assert_eq!(controller.limit(), None);
    }

    #[test]
    fn a_queue_that_empties_within_the_interval_is_no_overload() {
        let mut controller = Controller::default();
        for sample in 0..50 {
            assert_eq!(offered(&mut controller, 100), 100);
            controller.sampled(if sample % 5 == 4 { 0.0 } else { ABOVE * 10.0 }, None);
        }
        assert_eq!(controller.limit(), None);
    }

    #[test]
    fn a_lasting_delay_limits_the_rate_and_a_long_one_closes_admission() {
        let mut controller = Controller::default();
        for _ in 0..20 {
            offered(&mut controller, 100);
            controller.sampled(0.0, None);
        }
        let long = ABOVE * CLOSED_LOAD;
        (0..OVERLOADED_SAMPLES).for_each(|_| controller.sampled(long, None));
        assert_eq!((controller.limit(), offered(&mut controller, 10)), (Some(0.0), 0));
        controller.sampled(long, None);
        assert_eq!(offered(&mut controller, 10), 0, "until the delay is shorter");
        controller.sampled(ABOVE, None);
        let limit = controller.limit().unwrap();
        assert!((400.0..500.0).contains(&limit), "half of what was admitted before: {limit}");
        let admitted = offered(&mut controller, 1_000);
        assert!((40..=100).contains(&admitted), "the share of one or two samples: {admitted}");
        // The overload lasts.
        (0..AGAIN_SAMPLES * 2).for_each(|_| controller.sampled(ABOVE, None));
        let limit = controller.limit().unwrap();
        assert!((350.0..430.0).contains(&limit), "{limit}");
        // Refusals without a delay increase the limit.
        (0..10).for_each(|_| {
            offered(&mut controller, 1_000);
            controller.sampled(0.0, None);
        });
        assert!(controller.limit().unwrap() > limit);
        // Without refusals there is no limit after a while.
        (0..=CALM_SAMPLES).for_each(|_| controller.sampled(0.0, None));
        assert_eq!(controller.limit(), None);
    }

    #[test]
    fn with_a_budget_an_overload_decreases_the_rate_less() {
        let mut controller = Controller::default();
        for _ in 0..20 {
            offered(&mut controller, 100);
            controller.sampled(0.0, Some(900.0));
        }
        (0..OVERLOADED_SAMPLES).for_each(|_| controller.sampled(ABOVE, Some(900.0)));
        let limit = controller.limit().unwrap();
        assert!((740.0..780.0).contains(&limit), "{limit}");
    }

    #[test]
    fn a_queue_that_becomes_shorter_decreases_the_rate_once() {
        let mut controller = Controller::default();
        for _ in 0..20 {
            offered(&mut controller, 100);
            controller.sampled(0.0, None);
        }
        for sample in 0..=AGAIN_SAMPLES * 4 {
            offered(&mut controller, 1_000);
            controller.sampled(4.9 * 0.7_f64.powf(f64::from(sample) / f64::from(AGAIN_SAMPLES)), None);
        }
        let limit = controller.limit().unwrap();
        assert!((400.0..500.0).contains(&limit), "{limit}");
        for _ in 0..=AGAIN_SAMPLES {
            offered(&mut controller, 1_000);
            controller.sampled(4.0, None);
        }
        assert!(controller.limit().unwrap() < limit);
    }

    /// A service with this capacity. Of a payment's work, one share is due at once, and the rest after two seconds.
    #[test]
    fn overloaded_service_completes_nearly_what_it_can() {
        let (mailbox, settler) = ((0.1, 0.03), (0.0, 0.5));
        for (capacity, offered_factor, (at_once, target), share_least) in [
            (50.0, 2.0, mailbox, 0.9),
            (300.0, 2.0, mailbox, 0.9),
            (300.0, 3.0, mailbox, 0.9),
            (300.0, 10.0, mailbox, 0.85),
            (2_000.0, 3.0, mailbox, 0.9),
            (300.0, 2.0, settler, 0.9),
            (300.0, 3.0, settler, 0.9),
        ] {
            let (mut controller, seconds) = (Controller::default(), SAMPLE.as_secs_f64());
            let mut later: VecDeque<f64> = std::iter::repeat_n(0.0, 20).collect();
            let (mut queued, mut done, mut longest) = (0.0_f64, 0.0, 0.0_f64);
            for sample in 0..1_200 {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
                let admitted = f64::from(offered(&mut controller, (capacity * offered_factor * seconds) as u32));
                later.push_back(admitted * (1.0 - at_once));
                queued += admitted * at_once + later.pop_front().unwrap();
                let worked = queued.min(capacity * seconds);
                queued -= worked;
                // At first, it does not know how much is too much.
                if sample >= 300 {
                    (done, longest) = (done + worked, longest.max(queued / capacity));
                }
                controller.sampled(queued / capacity / target, None);
            }
            let share = done / (capacity * seconds * 900.0);
            assert!(share > share_least, "{capacity}/s, {offered_factor} times, {target} s: {share}");
            assert!(longest < 1.5, "{capacity}/s, {offered_factor} times, {target} s: {longest} s");
        }
    }
}
