//! Seeded randomness. Sixty-four bits of state are plenty for a few thousand draws, and the draws of one entity do not
//! depend on how many another made, so that a shrunk run stays similar to the original.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The generator of one entity in a run: a server, a process, a caller.
    pub(crate) fn of(seed: u64, kind: u64, number: u64) -> Rng {
        let mut rng = Rng(seed ^ kind.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ number.rotate_left(32));
        rng.next();
        rng
    }

    /// `SplitMix64`.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not zero. The modulo bias does not matter here.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Both ends included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// The same as a size.
    pub(crate) fn size(&mut self, low: usize, high: usize) -> usize {
        usize::try_from(self.between(low as u64, high as u64)).expect("it is at most `high`")
    }

    pub(crate) fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.size(0, of.len() - 1)]
    }

    /// A duration between two numbers of milliseconds, log-uniform: short ones are as likely as long ones.
    pub(crate) fn span(&mut self, low: u64, high: u64) -> Duration {
        let doublings = (high / low.max(1)).max(1).ilog2();
        let scale = low.max(1) << self.below(u64::from(doublings) + 1);
        let micros = self.between(scale * 500, scale * 2000);
        Duration::from_micros(micros.clamp(low * 1000, high * 1000))
    }
}
