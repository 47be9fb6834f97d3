//! How much is going on: calls, failures and latencies of each of the last seconds. Pure: told the time.

use std::collections::VecDeque;
use std::time::Duration;

use metamcp_types::moment::Moment;

/// Seconds that are kept.
const SECONDS: usize = 300;

/// Buckets of latencies: four for each power of two from 16 us on, which ends at half an hour.
const BUCKETS: usize = 112;
const PER_OCTAVE: u32 = 4;
const FIRST: u32 = 4;

/// How often each latency occurred, to within a fifth of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies(Box<[u32; BUCKETS]>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Box::new([0; BUCKETS]))
    }
}

impl Latencies {
    pub fn add(&mut self, took: Duration) {
        let bucket = &mut self.0[bucket_of(took)];
        *bucket = bucket.saturating_add(1);
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// The latency that this part of the calls did not exceed, such as 0.99; none without calls.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = ((count as f64) * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.0.iter().enumerate().find_map(|(bucket, count)| {
            seen += u64::from(*count);
            (seen >= wanted && seen > 0).then(|| end_of(bucket))
        })
    }

    fn extend(&mut self, other: &Latencies) {
        for (own, more) in self.0.iter_mut().zip(other.0.iter()) {
            *own = own.saturating_add(*more);
        }
    }
}

fn bucket_of(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1 << FIRST);
    let octave = micros.ilog2();
    // The two bits below the leading one.
    let part = (micros >> (octave - 2)) & 3;
    let bucket = u64::from((octave - FIRST) * PER_OCTAVE) + part;
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The longest latency of a bucket.
fn end_of(bucket: usize) -> Duration {
    let bucket = bucket as u64 + 1;
    let (octave, part) = (bucket / u64::from(PER_OCTAVE), bucket % u64::from(PER_OCTAVE));
    Duration::from_micros((1 << (octave + u64::from(FIRST))) * (4 + part) / 4)
}

/// What happened in one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Second {
    pub calls: u32,
    pub failed: u32,
    /// The longest call.
    pub slowest: Duration,
}

/// The last seconds.
#[derive(Debug, Default)]
pub struct Rates {
    /// The newest last; seconds without a call are there only between others.
    seconds: VecDeque<(Second, Latencies)>,
    /// The second of the newest.
    newest: u64,
}

impl Rates {
    /// Counts a call that ended now.
    pub fn add(&mut self, now: Moment, took: Duration, failed: bool) {
        self.advance(now.elapsed().as_secs());
        if let Some((second, latencies)) = self.seconds.back_mut() {
            second.calls += 1;
            second.failed += u32::from(failed);
            second.slowest = second.slowest.max(took);
            latencies.add(took);
        }
    }

    fn advance(&mut self, to: u64) {
        if self.seconds.is_empty() || to > self.newest + SECONDS as u64 {
            self.seconds.clear();
            self.seconds.push_back(<(Second, Latencies)>::default());
            self.newest = to;
        }
        while self.newest < to {
            // The memory of the oldest becomes the newest's: a second costs no allocation.
            let mut next = match self.seconds.len() {
                SECONDS.. => self.seconds.pop_front().unwrap_or_default(),
                _ => <(Second, Latencies)>::default(),
            };
            next.0 = Second::default();
            next.1.0.fill(0);
            self.seconds.push_back(next);
            self.newest += 1;
        }
    }

    /// The `count` whole seconds before this one, oldest first, and all their latencies.
    pub fn last(&self, count: usize, now: Moment) -> (Vec<Second>, Latencies) {
        let count = count.min(SECONDS);
        let now = now.elapsed().as_secs();
        let mut all = Latencies::default();
        let seconds = (1..=count as u64)
            .rev()
            .map(|back| {
                let known = now
                    .checked_sub(back)
                    .and_then(|second| self.newest.checked_sub(second))
                    .and_then(|behind| usize::try_from(behind).ok())
                    .and_then(|behind| self.seconds.len().checked_sub(behind + 1))
                    .and_then(|at| self.seconds.get(at));
                let Some((second, latencies)) = known else { return Second::default() };
                all.extend(latencies);
                *second
            })
            .collect();
        (seconds, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn quantiles_are_right_to_within_a_quarter() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        for millis in 1..=1000 {
            latencies.add(ms(millis));
        }
        assert_eq!(latencies.count(), 1000);
        for (part, exact) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = latencies.quantile(part).unwrap().as_secs_f64() * 1e3;
            assert!(found >= exact && found <= exact * 1.26, "{part}: {found}");
        }
    }

    #[test]
    fn every_length_has_a_bucket_that_reaches_it() {
        for micros in
            (0..60_u32).map(|power| 1_u64 << power).flat_map(|base| [base, base + base / 3])
        {
            let took = Duration::from_micros(micros);
            let bucket = bucket_of(took);
            assert!(bucket < BUCKETS);
            let is_last = bucket == BUCKETS - 1;
            assert!(is_last || end_of(bucket) >= took, "{micros}");
            assert!(bucket == 0 || end_of(bucket - 1) <= took, "{micros}");
        }
        assert!(end_of(BUCKETS - 1) > Duration::from_mins(30));
    }

    #[test]
    fn seconds_are_counted_where_they_belong() {
        let mut rates = Rates::default();
        rates.add(Moment::millis(1_500), ms(5), false);
        rates.add(Moment::millis(1_900), ms(9), true);
        rates.add(Moment::millis(4_000), ms(1), false);
        let (seconds, latencies) = rates.last(4, Moment::millis(5_100));
        let calls: Vec<_> = seconds.iter().map(|one| (one.calls, one.failed)).collect();
        assert_eq!(calls, [(2, 1), (0, 0), (0, 0), (1, 0)]);
        assert_eq!((latencies.count(), seconds[0].slowest), (3, ms(9)));
        let (seconds, _) = rates.last(9, Moment::millis(4_500));
        assert_eq!(seconds.iter().map(|one| one.calls).sum::<u32>(), 2, "not the one that goes on");
    }

    #[test]
    fn long_silence_and_long_life_keep_it_bounded() {
        let mut rates = Rates::default();
        for second in (0..2_000).chain([9_000, 9_001, 50_000]) {
            rates.add(Moment::millis(second * 1000), ms(1), false);
            assert!(rates.seconds.len() <= SECONDS);
        }
        let (seconds, _) = rates.last(1_000, Moment::millis(50_001_000));
        assert_eq!(seconds.len(), SECONDS);
        assert_eq!(seconds.last().unwrap().calls, 1);
        assert_eq!(seconds.iter().map(|one| one.calls).sum::<u32>(), 1);
        assert!(rates.last(3, Moment::START).0.iter().all(|one| one.calls == 0));
    }
}
