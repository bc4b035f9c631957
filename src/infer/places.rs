//! Where words stand in a text. In: words, or names as they are called, and a text. Out: [`Places`], which tells whether one of them stands
//! inside a part of the text, in the time of a look-up. Never: the meaning of a word. Next: `scale/roots.rs` and
//! `practice/asked.rs`, which ask for functions.

use crate::source::Span;
use rustc_hash::FxHashMap;

/// Where some words stand: their starts, ascending, and the least end of each and those after it.
#[derive(Clone, Debug, Default)]
pub struct Places {
    starts: Box<[u32]>,
    ends: Box<[u32]>,
    /// They may stand anywhere.
    anywhere: bool,
}

impl Places {
    pub fn new(mut found: Vec<(u32, u32)>) -> Places {
        found.sort_unstable();
        let (starts, mut ends): (Vec<u32>, Vec<u32>) = found.into_iter().unzip();
        for at in (1..ends.len()).rev() {
            ends[at - 1] = ends[at - 1].min(ends[at]);
        }
        Places { starts: starts.into(), ends: ends.into(), anywhere: false }
    }

    /// Of words that may stand anywhere, or nowhere.
    pub fn all(anywhere: bool) -> Places {
        Places { anywhere, ..Places::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty() && !self.anywhere
    }

    /// Whether one of the words stands inside a span.
    pub fn inside(&self, span: Span) -> bool {
        let at = self.starts.partition_point(|start| *start < span.start);
        self.anywhere || self.ends.get(at).is_some_and(|end| *end <= span.end)
    }
}

/// Where the words of some groups stand. Kept for every file of a run, so in as little memory as their places need.
#[derive(Clone, Debug, Default)]
pub struct Grouped {
    /// The groups that have a word in the text, ascending, each with the end of its places.
    ends: Box<[(u16, u32)]>,
    places: Offsets,
}

/// Places in a text. Most files are shorter than 64 kB.
#[derive(Clone, Debug)]
enum Offsets {
    Narrow(Box<[u16]>),
    Wide(Box<[u32]>),
}

impl Default for Offsets {
    fn default() -> Offsets {
        Offsets::Narrow(Box::default())
    }
}

impl Grouped {
    /// Of each group, the ends of its words in the text, ascending.
    pub fn new(groups: &[Vec<u32>]) -> Grouped {
        let mut end = 0;
        let ends = groups.iter().enumerate().filter(|(_, places)| !places.is_empty()).map(|(group, places)| {
            end += places.len() as u32;
            (group as u16, end)
        });
        let ends = ends.collect();
        let narrow: Option<Box<[u16]>> = groups.iter().flatten().map(|at| u16::try_from(*at).ok()).collect();
        let places = narrow.map_or_else(|| Offsets::Wide(groups.concat().into()), Offsets::Narrow);
        Grouped { ends, places }
    }

    /// Whether a word of a group ends inside a span.
    pub fn has(&self, group: usize, span: Span) -> bool {
        let Ok(at) = self.ends.binary_search_by_key(&group, |(group, _)| usize::from(*group)) else { return false };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let range = start as usize..self.ends[at].1 as usize;
        match &self.places {
            Offsets::Narrow(places) => ends_inside(&places[range], span),
            Offsets::Wide(places) => ends_inside(&places[range], span),
        }
    }
}

/// Whether one of these ends of words, ascending, lies inside a part of the text.
pub fn ends_inside<N: Copy + Into<u32>>(ends: &[N], span: Span) -> bool {
    let next = ends.partition_point(|at| (*at).into() <= span.start);
    ends.get(next).is_some_and(|at| (*at).into() <= span.end)
}

/// The parts of a span that others leave, in order; of these one may lie in another.
pub fn left_by(mut others: Vec<Span>, whole: Span) -> Vec<Span> {
    others.sort_by_key(|span| span.start);
    let (mut parts, mut from) = (Vec::new(), whole.start);
    for span in others {
        if span.start > from {
            parts.push(Span::new(from, span.start));
        }
        from = from.max(span.end);
    }
    if whole.end > from {
        parts.push(Span::new(from, whole.end));
    }
    parts
}

/// Start and end of each of these words in a text.
pub fn find<S: AsRef<str>>(text: &str, words: &[S]) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    for word in words.iter().map(AsRef::as_ref) {
        out.extend(starts(text, word).map(|at| (at as u32, (at + word.len()) as u32)));
    }
    out
}

/// Where a word starts in a text.
pub fn starts<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    memchr::memmem::find_iter(text.as_bytes(), word)
}

/// Names by their letters, the last one first: what is called is known from the bracket on.
#[derive(Debug, Default)]
pub struct Endings {
    /// The node after a letter; the first node is the bracket.
    next: FxHashMap<(u32, u8), u32>,
    /// The name that is complete at a node.
    names: Vec<Option<usize>>,
    count: usize,
}

impl Endings {
    /// The number of a name.
    pub fn add(&mut self, name: &str) -> usize {
        if self.names.is_empty() {
            self.names.push(None);
        }
        let mut node = 0u32;
        for letter in name.bytes().rev() {
            let fresh = self.names.len() as u32;
            node = *self.next.entry((node, letter)).or_insert(fresh);
            if node == fresh {
                self.names.push(None);
            }
        }
        let count = self.count;
        let number = *self.names[node as usize].get_or_insert(count);
        self.count = count.max(number + 1);
        number
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Every place where a bracket follows one of the names, also as the end of a longer one: the number, the start and the end.
    pub fn each(&self, text: &str, mut then: impl FnMut(usize, u32, u32)) {
        if self.count == 0 {
            return;
        }
        let bytes = text.as_bytes();
        for (bracket, _) in text.match_indices('(') {
            let (mut node, mut at) = (0u32, bracket);
            while let Some(letter) = at.checked_sub(1).and_then(|before| bytes.get(before)) {
                let Some(next) = self.next.get(&(node, *letter)) else { break };
                (node, at) = (*next, at - 1);
                if let Some(Some(name)) = self.names.get(node as usize) {
                    then(*name, at as u32, (bracket + 1) as u32);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_groups_in_short_and_long_texts() {
        for far in [900, 90_000] {
            let grouped = Grouped::new(&[vec![], vec![5, 20], vec![], vec![12, far]]);
            let has = |group, start, end| grouped.has(group, Span { start, end });
            assert!(has(1, 0, 5) && has(1, 5, 20) && has(3, 10, 15) && has(3, 800, far));
            assert!(!has(0, 0, far) && !has(1, 5, 19) && !has(2, 0, far) && !has(3, 12, far - 1) && !has(4, 0, far));
        }
    }

    #[test]
    fn words_outside_of_spans() {
        let spans = vec![Span { start: 30, end: 40 }, Span { start: 10, end: 20 }, Span { start: 12, end: 15 }];
        let parts = left_by(spans, Span { start: 0, end: 50 });
        let words = |at: &[u32]| Places::new(at.iter().map(|at| (*at, at + 1)).collect());
        let outside = |at: &[u32]| parts.iter().any(|part| words(at).inside(*part));
        assert!(!outside(&[]) && !outside(&[10, 13, 18, 30]));
        assert!(outside(&[9, 13]) && outside(&[13, 20]) && outside(&[31, 40]));
    }

    #[test]
    fn what_is_called_is_found_by_its_end() {
        let mut endings = Endings::default();
        let (sum, all) = (endings.add("sum"), endings.add("all_sum"));
        assert_eq!((endings.add("sum"), endings.len()), (sum, 2));
        let mut found = Vec::new();
        endings.each("all_sum(x) + sum (y) + my_sum(z)", |name, start, end| found.push((name, start, end)));
        assert_eq!(found, [(sum, 4, 8), (all, 0, 8), (sum, 26, 30)]);
    }

    #[test]
    fn a_word_is_inside_as_a_whole() {
        let places = Places::new(find("grad reduce_grad", &["reduce_grad", "grad"]));
        assert!(places.inside(Span::new(0, 4)) && places.inside(Span::new(1, 16)));
        assert!(!places.inside(Span::new(1, 15)) && !places.inside(Span::new(13, 16)));
    }
}
