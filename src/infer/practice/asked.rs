//! Which checks the text of a file asks for, found in one pass over its bytes. In: the words of the checks, the names of what
//! communicates, a text. Out: [`Shown`]. Never: the meaning of a word: a file that shows one may still have nothing to report.
//! Next: `mod.rs`.

use super::{OF_FUNCTIONS, raw, switch};
use crate::rules::{Entry, RuleBook};
use aho_corasick::{AhoCorasick, AhoCorasickKind, Match};
use std::collections::BTreeMap;

/// What a word in a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// The check of functions with this index has something to look at.
    Check(usize),
    /// The same, where the word is no part of a longer name.
    Named(usize),
    /// The name of something that communicates, where it is no part of a longer one.
    Communicates,
    /// A switch may be read.
    Switch,
    /// An attribute is set by its name.
    SetByName,
}

/// The words of all checks.
pub struct Asked {
    /// `None` where the words cannot be made into one automaton; then every check looks at every file.
    searcher: Option<AhoCorasick>,
    /// What the pattern with the same index means.
    signs: Vec<Vec<Sign>>,
}

/// What the text of a file shows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// For each check of functions, whether it has something to look at.
    pub checks: Vec<bool>,
    pub switches: bool,
    pub set_by_name: bool,
}

impl Shown {
    fn all(value: bool) -> Shown {
        Shown { checks: vec![value; OF_FUNCTIONS.len()], switches: value, set_by_name: value }
    }
}

/// Bytes from which the faster automaton is worth its construction.
const MUCH_TEXT: usize = 4 << 20;

impl Asked {
    /// `bytes`: the length of all texts.
    pub fn new(rules: &RuleBook, bytes: usize) -> Asked {
        let mut words: BTreeMap<String, Vec<Sign>> = BTreeMap::new();
        for (at, check) in OF_FUNCTIONS.iter().enumerate() {
            for word in check.words {
                words.entry((*word).to_string()).or_default().push(if check.whole {
                    Sign::Named(at)
                } else {
                    Sign::Check(at)
                });
            }
        }
        for name in communicating(rules) {
            words.entry(name).or_default().push(Sign::Communicates);
        }
        for word in switch::WORDS.iter().chain(&["__dict__"]) {
            words.entry((*word).to_string()).or_default().push(Sign::Switch);
        }
        words.entry("setattr".to_string()).or_default().push(Sign::SetByName);
        let kind = if bytes < MUCH_TEXT { AhoCorasickKind::ContiguousNFA } else { AhoCorasickKind::DFA };
        let searcher = AhoCorasick::builder().ascii_case_insensitive(true).kind(Some(kind)).build(words.keys()).ok();
        Asked { searcher, signs: words.into_values().collect() }
    }

    /// What a text shows.
    pub fn shown(&self, text: &str) -> Shown {
        let Some(searcher) = &self.searcher else { return Shown::all(true) };
        let mut shown = Shown::all(false);
        let mut communicates = false;
        for found in searcher.find_overlapping_iter(text) {
            for sign in &self.signs[found.pattern().as_usize()] {
                match sign {
                    Sign::Check(at) => shown.checks[*at] = true,
                    Sign::Named(at) => shown.checks[*at] = shown.checks[*at] || stands_alone(text, &found),
                    Sign::Communicates => communicates = communicates || stands_alone(text, &found),
                    Sign::Switch => shown.switches = true,
                    Sign::SetByName => shown.set_by_name = true,
                }
            }
        }
        for (asked, check) in shown.checks.iter_mut().zip(OF_FUNCTIONS) {
            *asked |= check.communicates && communicates;
        }
        shown
    }
}

/// Whether what was found is no part of a longer name.
fn stands_alone(text: &str, found: &Match) -> bool {
    let continues = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii());
    let bytes = text.as_bytes();
    let before = found.start().checked_sub(1).and_then(|at| bytes.get(at));
    !continues(before) && !continues(bytes.get(found.end()))
}

/// The last parts of the names of everything that communicates.
fn communicating(rules: &RuleBook) -> impl Iterator<Item = String> {
    let communicates = |entry: &Entry| match entry {
        Entry::Collective(_) => true,
        Entry::Intrinsic(rule) => raw::COMMUNICATES.contains(&&*rule.does),
        Entry::Layer(_) | Entry::Op(_) | Entry::Module(_) | Entry::Group(_) | Entry::Mark(_) => false,
    };
    let names = rules.entries().filter(move |(_, entry)| communicates(entry)).map(|(name, _)| name);
    names.map(|name| name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase())
}
