//! Suggestions for misspelt names.

/// Returns the candidate nearest to `word`, if `word` looks like a misspelling or an abbreviation of it.
pub(super) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    // No misspelling is longer, and the cost of the distance is quadratic in the length.
    const LENGTH_MAX: usize = 32;
    let word: Vec<char> = word.to_lowercase().chars().take(LENGTH_MAX + 1).collect();
    if word.len() > LENGTH_MAX {
        return None;
    }
    candidates
        .iter()
        .map(|&candidate| (distance(&word, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= (word.len() / 3).max(1) || abbreviates(&word, candidate))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance: the number of insertions, deletions and replacements.
fn distance(word: &[char], candidate: &str) -> usize {
    let mut row: Vec<usize> = (0..=word.len()).collect();
    for (line, expected) in candidate.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, &found) in word.iter().enumerate() {
            let replaced = diagonal + usize::from(found != expected);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[word.len()]
}

/// Returns whether one is a prefix of the other, like `rev` and `revision` or `metadata` and `meta`.
fn abbreviates(word: &[char], candidate: &str) -> bool {
    const LENGTH_MIN: usize = 3;
    let common = word.iter().zip(candidate.chars()).take_while(|(found, expected)| **found == *expected).count();
    common >= LENGTH_MIN && (common == word.len() || common == candidate.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_misspellings_and_abbreviations_get_a_suggestion() {
        let names = ["id", "service", "locality", "revision", "status", "meta"];
        for (word, expected) in [
            ("servce", Some("service")),
            ("sevrice", Some("service")),
            ("Service", Some("service")),
            ("ids", Some("id")),
            ("rev", Some("revision")),
            ("metadata", Some("meta")),
            ("stauts", Some("status")),
            ("up", None),
            ("zone", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &names), expected, "{word}");
        }
        assert_eq!(nearest(&"s".repeat(10_000), &names), None);
    }
}
