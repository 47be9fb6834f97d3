//! hit@1, recall@5, recall@10, MRR and nDCG@10.

/// Places of a ranking that count.
pub const DEPTH: usize = 10;

/// Scores of one query, or the mean over many. All between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measures {
    /// Whether the first hit is an expected tool.
    pub hit_at_1: f64,
    /// Share of the expected tools among the first five.
    pub recall_at_5: f64,
    /// The same among the first ten.
    pub recall_at_10: f64,
    /// One over the place of the first expected tool.
    pub mrr: f64,
    /// Gain discounted by place, beside that of a perfect ranking.
    pub ndcg_at_10: f64,
}

impl Measures {
    /// `found` says of each hit which of the `expected` tools it is. A second hit for the same one adds nothing.
    pub fn of(found: impl Iterator<Item = Option<usize>>, expected: usize) -> Measures {
        let mut measures = Measures::default();
        let (mut seen, mut gain) = (Vec::new(), 0.0);
        let share = 1.0 / expected.max(1) as f64;
        for (place, which) in found.take(DEPTH).enumerate() {
            let Some(which) = which.filter(|which| !seen.contains(which)) else { continue };
            seen.push(which);
            gain += discount(place);
            if measures.mrr == 0.0 {
                measures.mrr = 1.0 / (place + 1) as f64;
            }
            measures.hit_at_1 += f64::from(u8::from(place == 0));
            measures.recall_at_5 += if place < 5 { share } else { 0.0 };
            measures.recall_at_10 += share;
        }
        let ideal: f64 = (0..expected.min(DEPTH)).map(discount).sum();
        measures.ndcg_at_10 = if ideal > 0.0 { gain / ideal } else { 0.0 };
        measures
    }

    /// The numbers in the order in which they are shown.
    pub fn numbers(&self) -> [f64; 5] {
        [self.hit_at_1, self.recall_at_5, self.recall_at_10, self.mrr, self.ndcg_at_10]
    }
}

fn discount(place: usize) -> f64 {
    1.0 / (place as f64 + 2.0).log2()
}

/// A mean in the making.
#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    sum: [f64; 5],
    /// How many were added.
    pub count: usize,
}

impl Total {
    /// One more.
    pub fn add(&mut self, measures: &Measures) {
        self.sum.iter_mut().zip(measures.numbers()).for_each(|(sum, number)| *sum += number);
        self.count += 1;
    }

    /// The mean so far.
    pub fn mean(&self) -> Measures {
        let [hit_at_1, recall_at_5, recall_at_10, mrr, ndcg_at_10] =
            self.sum.map(|sum| sum / self.count.max(1) as f64);
        Measures { hit_at_1, recall_at_5, recall_at_10, mrr, ndcg_at_10 }
    }
}
