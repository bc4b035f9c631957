//! Which checks the text of a file asks for, found in one pass over its bytes. In: the words of the checks, the names of what
//! communicates, a text. Out: [`Shown`]. Never: the meaning of a word: a file that shows one may still have nothing to report.
//! Next: `mod.rs`.

use super::{COMMUNICATES, OF_FUNCTIONS, data_sum, plan, switch};
use crate::project::ModuleId;
use crate::rules::RuleBook;
use crate::source::{Idx, Span};
use aho_corasick::{AhoCorasick, AhoCorasickKind, Match};
use std::collections::BTreeMap;
use std::sync::OnceLock;

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
    /// Gradients may be summed in a way that is not followed, where it is written in lowercase.
    Wraps,
    /// There may be something for the checks that look at the whole project, for plans, and for maps of checkpoints; in lowercase too.
    InProject,
    Plans,
    Maps,
}

/// The words of all checks.
pub struct Asked {
    /// `None` where the words cannot be made into one automaton; then every check looks at every file.
    searcher: Option<AhoCorasick>,
    /// What the pattern with the same index means.
    signs: Vec<Vec<Sign>>,
    /// What each module shows, once somebody asked.
    shown: Vec<OnceLock<Shown>>,
}

/// What the text of a file shows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// For each check of functions, whether it has something to look at.
    pub checks: Vec<bool>,
    pub communicates: bool,
    /// Where words of switches stand, ascending.
    pub switches: Vec<u32>,
    pub set_by_name: bool,
    pub wraps: bool,
    pub in_project: bool,
    pub plans: bool,
    pub maps: bool,
}

impl Shown {
    /// Whether a word of switches stands in a part of the text.
    pub fn has_switch(&self, span: Span) -> bool {
        let next = self.switches.partition_point(|at| *at <= span.start);
        self.switches.get(next).is_some_and(|at| *at <= span.end)
    }

    fn all(value: bool) -> Shown {
        Shown {
            checks: vec![value; OF_FUNCTIONS.len()],
            communicates: value,
            switches: Vec::new(),
            set_by_name: value,
            wraps: value,
            in_project: value,
            plans: value,
            maps: value,
        }
    }
}

/// Bytes from which the faster automaton is worth its construction.
const MUCH_TEXT: usize = 4 << 20;

impl Asked {
    /// `bytes`: the length of all texts.
    pub fn new(rules: &RuleBook, modules: usize, bytes: usize) -> Asked {
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
        for name in rules.communicating() {
            words.entry(name.to_ascii_lowercase()).or_default().push(Sign::Communicates);
        }
        let others = [
            (data_sum::WRAPPERS, Sign::Wraps),
            (COMMUNICATES, Sign::InProject),
            (plan::WORDS, Sign::Plans),
            (&["state_dict"], Sign::Maps),
        ];
        for (of, sign) in others {
            of.iter().for_each(|word| words.entry((*word).to_string()).or_default().push(sign));
        }
        for word in switch::WORDS.iter().chain(&["__dict__"]) {
            words.entry((*word).to_string()).or_default().push(Sign::Switch);
        }
        words.entry("setattr".to_string()).or_default().push(Sign::SetByName);
        let kind = if bytes < MUCH_TEXT { AhoCorasickKind::ContiguousNFA } else { AhoCorasickKind::DFA };
        let searcher = AhoCorasick::builder().ascii_case_insensitive(true).kind(Some(kind)).build(words.keys()).ok();
        let shown = (0..modules).map(|_| OnceLock::new()).collect();
        Asked { searcher, signs: words.into_values().collect(), shown }
    }

    /// What the text of a module shows.
    pub fn shown(&self, module: ModuleId, text: &str) -> Shown {
        match self.shown.get(module.index()) {
            Some(known) => known.get_or_init(|| self.read(text)).clone(),
            None => self.read(text),
        }
    }

    fn read(&self, text: &str) -> Shown {
        let Some(searcher) = &self.searcher else {
            // Everything may stand everywhere.
            let switches = (1..=u32::try_from(text.len()).unwrap_or(u32::MAX)).collect();
            return Shown { switches, ..Shown::all(true) };
        };
        let mut shown = Shown::all(false);
        for found in searcher.find_overlapping_iter(text) {
            for sign in &self.signs[found.pattern().as_usize()] {
                match sign {
                    Sign::Check(at) => shown.checks[*at] = true,
                    Sign::Named(at) => shown.checks[*at] = shown.checks[*at] || stands_alone(text, &found),
                    Sign::Communicates => shown.communicates = shown.communicates || stands_alone(text, &found),
                    Sign::Switch => shown.switches.push(found.end() as u32),
                    Sign::SetByName => shown.set_by_name = true,
                    Sign::Wraps => shown.wraps = shown.wraps || is_lowercase(text, &found),
                    Sign::InProject => shown.in_project = shown.in_project || is_lowercase(text, &found),
                    Sign::Plans => shown.plans = shown.plans || is_lowercase(text, &found),
                    Sign::Maps => shown.maps = shown.maps || is_lowercase(text, &found),
                }
            }
        }
        for (asked, check) in shown.checks.iter_mut().zip(OF_FUNCTIONS) {
            *asked |= check.communicates && shown.communicates;
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

fn is_lowercase(text: &str, found: &Match) -> bool {
    text.as_bytes().get(found.range()).is_some_and(|bytes| !bytes.iter().any(u8::is_ascii_uppercase))
}
