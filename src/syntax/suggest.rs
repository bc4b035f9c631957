//! Near misses. In: a word and the words that are allowed. Out: the one that was probably meant. Never: guessing far.
//! Next: `clauses.rs`, its main user.

/// The closest allowed word, if at most two letters (one in a short word) differ.
pub(super) fn closest<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    let limit = if word.chars().count() <= 3 { 1 } else { 2 };
    let best = allowed.iter().map(|candidate| (distance(word, candidate), *candidate)).min()?;
    (best.0 <= limit && best.0 > 0).then_some(best.1)
}

/// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(40).collect(), b.chars().take(40).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn near_and_far() {
        let words = ["mesh", "alias", "assume", "ignore"];
        assert_eq!(closest("messh", &words), Some("mesh"));
        assert_eq!(closest("ingore", &words), Some("ignore"));
        assert_eq!(closest("types", &words), None);
        assert_eq!(closest("mesh", &words), None, "exact matches are not suggestions");
    }
}
