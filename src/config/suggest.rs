//! The nearest known word to a mistyped one. In: a word and the known words. Out: at most one suggestion.
//! Never: a suggestion so far off that it misleads. Next: `reader.rs` and `cli/`, which print it.

/// The closest of `known`, when it is close enough to be what was meant; ties go to the first.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let limit = (word.chars().count() / 3).clamp(1, 4);
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let lower = candidate.to_lowercase();
        let distance = if lower == word { 0 } else { edit_distance(&word, &lower) };
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Levenshtein distance in which swapping two neighbours counts as one edit.
fn edit_distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut rows = vec![(0..=right.len()).collect::<Vec<usize>>()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let changed = usize::from(left[i - 1] != right[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            let swapped = i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
            if swapped {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["include", "exclude", "mesh", "levels"];
        assert_eq!(closest("inclde", known), Some("include"));
        assert_eq!(closest("mehs", known), Some("mesh"));
        assert_eq!(closest("Levels", known), Some("levels"));
        assert_eq!(closest("colour", known), None);
    }
}
