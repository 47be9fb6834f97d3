use proptest::prelude::*;

use super::*;

const COOLDOWN: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_mins(1);

fn breaker(threshold: u32) -> Breaker {
    Breaker::new(Policy { threshold, cooldown: COOLDOWN, probe_limit: PROBE })
}

fn trip(breaker: &mut Breaker, now: Moment) {
    while matches!(breaker.phase(), Phase::Normal { .. }) {
        let permit = breaker.admit(now).expect("normal admits");
        breaker.settle(permit, Outcome::Failure, now, Duration::ZERO);
    }
}

#[test]
fn opens_at_the_threshold_and_rejects_within_cooldown() {
    let mut b = breaker(5);
    trip(&mut b, Moment::START);
    let refused = b.admit(Moment::millis(10_000)).unwrap_err();
    assert_eq!(refused.retry_after, Duration::from_secs(20));
}

#[test]
fn ten_thousand_callers_at_the_end_of_a_cooldown_one_admitted() {
    let mut b = breaker(5);
    trip(&mut b, Moment::START);
    let end = Moment::START + COOLDOWN;
    let admitted = (0..10_000).filter(|_| b.admit(end).is_ok()).count();
    assert_eq!(admitted, 1);
}

#[test]
fn a_failed_probe_opens_at_once_with_a_fresh_cooldown() {
    let mut b = breaker(5);
    trip(&mut b, Moment::START);
    let end = Moment::START + COOLDOWN;
    let probe = b.admit(end).unwrap();
    assert!(probe.is_probe());
    b.settle(probe, Outcome::Failure, end, Duration::ZERO);
    assert_eq!(b.phase(), Phase::Open { until: end + COOLDOWN });
}

#[test]
fn a_cancelled_probe_frees_the_permit() {
    let mut b = breaker(1);
    trip(&mut b, Moment::START);
    let end = Moment::START + COOLDOWN;
    let probe = b.admit(end).unwrap();
    b.settle(probe, Outcome::Neutral, end, Duration::ZERO);
    assert!(b.admit(end).unwrap().is_probe());
}

#[test]
fn a_probe_that_never_answers_cannot_wedge_it() {
    let mut b = breaker(1);
    trip(&mut b, Moment::START);
    let end = Moment::START + COOLDOWN;
    let lost = b.admit(end).unwrap();
    let late = end + PROBE;
    assert!(b.admit(late).is_err());
    assert_eq!(b.phase(), Phase::Open { until: late + COOLDOWN });
    // Its own late outcome changes nothing any more.
    b.settle(lost, Outcome::Success, late, Duration::ZERO);
    assert_eq!(b.phase(), Phase::Open { until: late + COOLDOWN });
}

/// One step of a history: what happens, after how long.
#[derive(Clone, Copy, Debug)]
enum Step {
    Admit,
    Settle(usize, Outcome),
    Wait(Duration),
    Expire,
}

/// Runs a history next to a plain statement of the rules.
fn check_history(threshold: u32, steps: &[Step]) {
    let mut b = breaker(threshold);
    let mut now = Moment::START;
    let mut out: Vec<Permit> = Vec::new();
    let mut probes_out = 0_usize;
    for &step in steps {
        let before = b.phase();
        match step {
            Step::Wait(length) => now = now + length,
            Step::Expire => b.expire(now),
            Step::Admit => {
                let admitted = b.admit(now);
                match before {
                    Phase::Normal { .. } => assert!(admitted.is_ok()),
                    Phase::Open { until } => assert_eq!(admitted.is_ok(), now >= until),
                    Phase::Probing { .. } => assert!(admitted.is_err(), "a second probe"),
                }
                if let Ok(permit) = admitted {
                    probes_out += usize::from(permit.probe);
                    out.push(permit);
                }
            }
            Step::Settle(which, outcome) if !out.is_empty() => {
                let permit = out.remove(which % out.len());
                let (probe, stale) = (permit.probe, permit.epoch != b.epoch);
                b.settle(permit, outcome, now, Duration::ZERO);
                if stale {
                    assert_eq!(b.phase(), before, "a stale outcome changed something");
                }
                if outcome == Outcome::Neutral && !probe {
                    assert_eq!(b.phase(), before, "a neutral outcome changed something");
                }
                if probe && !stale && outcome == Outcome::Failure {
                    assert_eq!(b.phase(), Phase::Open { until: now + COOLDOWN });
                }
                if probe && !stale && outcome == Outcome::Success {
                    assert_eq!(b.phase(), Phase::Normal { failures: 0 });
                }
            }
            Step::Settle(..) => {}
        }
        if let Phase::Normal { failures } = b.phase() {
            assert!(failures < threshold);
        }
    }
    // Never wedged: after a probe's limit and a cooldown somebody is let through.
    now = now + PROBE;
    b.expire(now);
    now = now + COOLDOWN;
    assert!(b.admit(now).is_ok(), "wedged after {steps:?} ({probes_out} probes)");
}

#[test]
fn every_short_history_keeps_the_rules() {
    let alphabet = [
        Step::Admit,
        Step::Settle(0, Outcome::Success),
        Step::Settle(0, Outcome::Failure),
        Step::Settle(0, Outcome::Neutral),
        Step::Settle(1, Outcome::Failure),
        Step::Wait(COOLDOWN),
        Step::Expire,
    ];
    fn walk(alphabet: &[Step], history: &mut Vec<Step>, left: usize, seen: &mut usize) {
        if left == 0 {
            check_history(2, history);
            *seen += 1;
            return;
        }
        for &step in alphabet {
            history.push(step);
            walk(alphabet, history, left - 1, seen);
            history.pop();
        }
    }
    let mut seen = 0;
    walk(&alphabet, &mut Vec::new(), 6, &mut seen);
    assert_eq!(seen, 7_usize.pow(6));
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Admit),
        4 => (any::<usize>(), prop_oneof![
            Just(Outcome::Success), Just(Outcome::Failure), Just(Outcome::Neutral)
        ]).prop_map(|(i, o)| Step::Settle(i, o)),
        2 => (0u64..40_000).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
        1 => Just(Step::Expire),
    ]
}

proptest! {
    #[test]
    fn long_random_histories_keep_the_rules(
        threshold in 1u32..6,
        steps in proptest::collection::vec(any_step(), 0..200),
    ) {
        check_history(threshold, &steps);
    }
}
