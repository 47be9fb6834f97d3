//! Edit distance between two words, bounded.

/// Slips that are forgiven in a word: none in a short one, where every letter makes another word.
pub(super) fn allowed(word: &str) -> Option<usize> {
    match word.len() {
        0..=3 => None,
        4..=7 => Some(1),
        _ => Some(2),
    }
}

/// Letters left out, added, changed or swapped with their neighbour; `None` when there are more than `most`.
pub(super) fn distance(left: &str, right: &str, most: usize) -> Option<usize> {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len().abs_diff(right.len()) > most || left.len() > MAX || right.len() > MAX {
        return None;
    }
    let mut rows = [[0usize; MAX + 1]; 3];
    for (at, cell) in rows[0].iter_mut().enumerate() {
        *cell = at;
    }
    for (i, &a) in left.iter().enumerate() {
        let (now, before, earlier) = ((i + 1) % 3, i % 3, (i + 2) % 3);
        rows[now][0] = i + 1;
        let mut least = i + 1;
        for (j, &b) in right.iter().enumerate() {
            let changed = rows[before][j] + usize::from(a != b);
            let mut cost = changed.min(rows[before][j + 1] + 1).min(rows[now][j] + 1);
            if i > 0 && j > 0 && a == right[j - 1] && left[i - 1] == b {
                cost = cost.min(rows[earlier][j - 1] + 1);
            }
            rows[now][j + 1] = cost;
            least = least.min(cost);
        }
        if least > most {
            return None;
        }
    }
    let cost = rows[left.len() % 3][right.len()];
    (cost <= most).then_some(cost)
}

/// Longest word compared; the index holds none that is longer.
const MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        let check = |a, b, most| distance(a, b, most);
        assert_eq!(check("file", "file", 1), Some(0));
        assert_eq!(check("fiel", "file", 1), Some(1), "swapped");
        assert_eq!(check("fle", "file", 1), Some(1), "left out");
        assert_eq!(check("ffile", "file", 1), Some(1), "added");
        assert_eq!(check("fire", "file", 1), Some(1), "changed");
        assert_eq!(check("directroy", "directory", 2), Some(1));
        assert_eq!(check("calender", "calendar", 2), Some(1));
        assert_eq!(check("repository", "repositry", 2), Some(1));
        assert_eq!(check("commit", "comment", 1), None);
        assert_eq!(allowed("git"), None);
    }
}
