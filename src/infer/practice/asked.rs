//! Which checks the text of a file asks for, found in one pass over its bytes. In: the words of the checks, the names of what
//! communicates, a text. Out: [`Shown`]. Never: the meaning of a word: a file that shows one may still have nothing to report.
//! Next: `mod.rs`.

use super::{COMMUNICATES, Check, OF_FUNCTIONS, data_sum, plan, reducers, switch};
use crate::infer::digest::Digests;
use crate::infer::memo::{Memo, constant};
use crate::infer::places::{Grouped, Places, ends_inside};
use crate::infer::scale::roots;
use crate::project::ModuleId;
use crate::rules::{Entry, RuleBook};
use crate::source::{Files, Idx, Span};
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::{Anchored, PatternID, StartKind, dfa, nfa};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

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
    /// The name of a mark, or a function that sets some; a word of functions that reduce gradients.
    Mark,
    Gradient,
    /// The file speaks of something.
    Topic(Topic),
    /// A word that some check asks for in the function itself, of the group with this number.
    Near(usize),
    /// An attribute is set by its name.
    SetByName,
    /// Gradients may be summed in a way that is not followed, where it is written in lowercase.
    Wraps,
    /// There may be something for the checks that look at the whole project, for plans, and for maps of checkpoints; in lowercase too.
    InProject,
    Plans,
    Maps,
}

/// What a file may speak of, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Parameters are made.
    Parameters,
    /// Gradients are taken or read.
    Scaled,
    /// Anything with `grad` in it.
    Gradients,
    /// A part of every word of reductions and wrappers.
    Reductions,
    /// Objects that train, or their packages.
    Trainers,
    /// Methods that return a loss to a base outside the project.
    Losses,
    Receives,
    /// A function is applied to an attribute.
    Applies,
}

const TOPICS: usize = 8;

/// What a word means, and how it has to be written, where that matters.
type Meant = (Sign, Option<String>);

/// What the texts of a project show.
pub struct Asked {
    sought: Arc<Sought>,
    /// What each module shows, once somebody asked.
    shown: Vec<OnceLock<Shown>>,
}

/// What is asked of all files before any is looked at for good.
pub struct Taken {
    pub digests: Digests,
    pub asked: Asked,
}

impl Taken {
    /// Nothing so far.
    pub fn later(rules: &RuleBook, files: &Files, memo: Option<&Memo>) -> Taken {
        // Of a project that is edited, few texts are searched.
        let bytes = if memo.is_some() { 0 } else { files.bytes() };
        let digests = Digests::later(rules, files.len(), memo);
        Taken { digests, asked: Asked::new(rules, files.len(), bytes, memo) }
    }
}

/// The words of all checks.
struct Sought {
    searcher: Searcher,
    /// What the pattern with the same index means.
    signs: Vec<Vec<Meant>>,
    /// The groups of words that each check asks for in the function itself.
    near: Arc<Vec<Vec<usize>>>,
    groups: usize,
}

/// Words in lowercase, with what they mean.
#[derive(Default)]
struct Words(BTreeMap<String, Vec<Meant>>);

impl Words {
    fn add(&mut self, word: &str, sign: Sign) {
        self.0.entry(word.to_string()).or_default().push((sign, None));
    }

    /// A word that counts where it is written so.
    fn exact(&mut self, word: &str, sign: Sign) {
        self.0.entry(word.to_ascii_lowercase()).or_default().push((sign, Some(word.to_string())));
    }

    /// Words of files that are looked at before, and beside, the checks.
    fn of_rules(&mut self, rules: &RuleBook) {
        for (name, _) in rules.entries().filter(|(_, entry)| matches!(entry, Entry::Mark(_))) {
            self.exact(&name[1..], Sign::Mark);
        }
        self.exact("parallel_attributes", Sign::Mark);
        reducers::GRADIENTS.iter().for_each(|word| self.exact(word, Sign::Gradient));
        let topics: [(&[&str], Topic); 6] = [
            (&["Parameter(", "nn.Linear"], Topic::Parameters),
            (roots::GRADIENTS, Topic::Scaled),
            (&["grad"], Topic::Gradients),
            (roots::PARTS, Topic::Reductions),
            (&["recv("], Topic::Receives),
            (&[".apply(self."], Topic::Applies),
        ];
        for (words, topic) in topics {
            words.iter().for_each(|word| self.exact(word, Sign::Topic(topic)));
        }
        rules.trainers().iter().for_each(|(package, _)| self.exact(package, Sign::Topic(Topic::Trainers)));
        rules.callings().for_each(|word| self.exact(&format!("{word}."), Sign::Topic(Topic::Trainers)));
        rules.loss_methods().iter().for_each(|name| self.exact(name, Sign::Topic(Topic::Losses)));
    }
}

/// What finds the words.
enum Searcher {
    /// Faster, and made with more effort.
    Fast(Box<dfa::DFA>),
    Small(Box<nfa::contiguous::NFA>),
    /// The words cannot be made into one automaton: every check looks at every file.
    None,
}

impl Searcher {
    fn new(words: &[&String], is_fast: bool) -> Searcher {
        let fast = || {
            let mut builder = dfa::Builder::new();
            builder.ascii_case_insensitive(true).start_kind(StartKind::Unanchored).prefilter(false);
            builder.build(words).ok().map(|dfa| Searcher::Fast(Box::new(dfa)))
        };
        let small = || {
            let mut builder = nfa::contiguous::Builder::new();
            builder.ascii_case_insensitive(true).prefilter(false);
            builder.build(words).ok().map(|nfa| Searcher::Small(Box::new(nfa)))
        };
        if is_fast { fast() } else { small() }.unwrap_or(Searcher::None)
    }

    /// Every place of every word, also inside longer ones.
    fn each(&self, text: &str, then: impl FnMut(PatternID, Range<usize>)) {
        match self {
            Searcher::Fast(dfa) => each(&**dfa, text, then),
            Searcher::Small(nfa) => each(&**nfa, text, then),
            Searcher::None => {}
        }
    }
}

fn each(automaton: &impl Automaton, text: &str, mut then: impl FnMut(PatternID, Range<usize>)) {
    let Ok(mut state) = automaton.start_state(Anchored::No) else { return };
    let mut at = 0;
    while at < text.len() {
        (state, at) = next(automaton, text.as_bytes(), state, at);
        if automaton.is_match(state) {
            for nth in 0..automaton.match_len(state) {
                let pattern = automaton.match_pattern(state, nth);
                then(pattern, at - automaton.pattern_len(pattern)..at);
            }
        }
    }
}

/// Goes on to the next state in which something may be found. On its own, so that nothing but the state is kept between two bytes.
#[inline(never)]
fn next(automaton: &impl Automaton, text: &[u8], mut state: StateID, at: usize) -> (StateID, usize) {
    for (passed, byte) in text[at..].iter().enumerate() {
        state = automaton.next_state(Anchored::No, state, *byte);
        if automaton.is_special(state) {
            return (state, at + passed + 1);
        }
    }
    (state, text.len())
}

/// What the text of a file shows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The checks of functions that have something to look at, ascending.
    checks: Box<[u16]>,
    pub communicates: bool,
    /// Where words of switches stand, ascending.
    pub switches: Vec<u32>,
    /// The groups of words that each check asks for in the function itself; nothing where they may stand everywhere.
    groups: Arc<Vec<Vec<usize>>>,
    /// Where the words of each group stand.
    near: Grouped,
    pub set_by_name: bool,
    pub wraps: bool,
    pub in_project: bool,
    pub plans: bool,
    pub maps: bool,
    /// Where marks are named, and where gradients may be reduced.
    pub marks: Places,
    pub gradients: Places,
    topics: [bool; TOPICS],
}

impl Shown {
    /// Whether a word of switches stands in a part of the text.
    pub fn has_switch(&self, span: Span) -> bool {
        ends_inside(&self.switches, span)
    }

    /// Whether the words stand in a part of the text that a check asks for there.
    pub fn is_near(&self, check: usize, span: Span) -> bool {
        self.groups.get(check).is_none_or(|groups| groups.iter().all(|group| self.near.has(*group, span)))
    }

    /// The checks of functions that have something to look at, each with its number.
    pub fn asked(&self) -> impl Iterator<Item = (usize, &'static Check)> {
        self.checks.iter().map(|at| (usize::from(*at), &OF_FUNCTIONS[usize::from(*at)]))
    }

    /// Whether the file speaks of something.
    pub fn speaks_of(&self, topic: Topic) -> bool {
        self.topics[topic as usize]
    }

    fn all(value: bool) -> Shown {
        Shown {
            checks: if value { numbers(|_| true) } else { Box::default() },
            communicates: value,
            switches: Vec::new(),
            groups: Arc::default(),
            near: Grouped::default(),
            set_by_name: value,
            wraps: value,
            in_project: value,
            plans: value,
            maps: value,
            marks: Places::all(value),
            gradients: Places::all(value),
            topics: [value; TOPICS],
        }
    }
}

/// The numbers of some checks of functions, ascending.
fn numbers(asked: impl Fn(usize) -> bool) -> Box<[u16]> {
    (0..OF_FUNCTIONS.len()).filter(|at| asked(*at)).filter_map(|at| u16::try_from(at).ok()).collect()
}

/// Bytes from which the faster automaton is worth its construction.
const MUCH_TEXT: usize = 4 << 20;

impl Asked {
    /// `bytes`: the length of all texts.
    pub fn new(rules: &RuleBook, modules: usize, bytes: usize, memo: Option<&Memo>) -> Asked {
        let sought = constant(memo, "asked", || Sought::new(rules, bytes));
        Asked { sought, shown: (0..modules).map(|_| OnceLock::new()).collect() }
    }

    /// What the text of a module shows.
    pub fn shown(&self, module: ModuleId, text: &str) -> &Shown {
        self.shown_in(module.index(), text)
    }

    /// The same of the module that the file with this number will be.
    pub fn shown_in(&self, number: usize, text: &str) -> &Shown {
        self.shown[number].get_or_init(|| self.sought.read(text))
    }
}

impl Sought {
    fn new(rules: &RuleBook, bytes: usize) -> Sought {
        let mut words = Words::default();
        for (at, check) in OF_FUNCTIONS.iter().enumerate() {
            for word in check.words {
                words.add(word, if check.whole { Sign::Named(at) } else { Sign::Check(at) });
            }
        }
        for name in rules.communicating() {
            words.add(&name.to_ascii_lowercase(), Sign::Communicates);
        }
        let others = [
            (data_sum::WRAPPERS, Sign::Wraps),
            (COMMUNICATES, Sign::InProject),
            (plan::WORDS, Sign::Plans),
            (&["state_dict"], Sign::Maps),
        ];
        for (of, sign) in others {
            of.iter().for_each(|word| words.add(word, sign));
        }
        for word in switch::WORDS.iter().chain(&["__dict__"]) {
            words.add(word, Sign::Switch);
        }
        words.add("setattr", Sign::SetByName);
        words.of_rules(rules);
        let mut groups: Vec<(&[&str], bool)> = Vec::new();
        let mut number = |group: (&'static [&'static str], bool)| match groups.iter().position(|known| *known == group)
        {
            Some(at) => at,
            None => {
                groups.push(group);
                groups.len() - 1
            }
        };
        let mut of = |check: &Check| check.near.iter().map(|group| number((*group, check.as_written))).collect();
        let near: Vec<Vec<usize>> = OF_FUNCTIONS.iter().map(&mut of).collect();
        for (at, (group, as_written)) in groups.iter().enumerate() {
            for word in *group {
                match as_written {
                    true => words.exact(word, Sign::Near(at)),
                    false => words.add(word, Sign::Near(at)),
                }
            }
        }
        let searcher = Searcher::new(&words.0.keys().collect::<Vec<_>>(), bytes >= MUCH_TEXT);
        Sought { searcher, signs: words.0.into_values().collect(), near: Arc::new(near), groups: groups.len() }
    }

    fn read(&self, text: &str) -> Shown {
        if matches!(self.searcher, Searcher::None) {
            // Everything may stand everywhere.
            let switches = (1..=u32::try_from(text.len()).unwrap_or(u32::MAX)).collect();
            return Shown { switches, ..Shown::all(true) };
        }
        let mut shown = Shown::all(false);
        let mut checks = vec![false; OF_FUNCTIONS.len()];
        let mut near = vec![Vec::new(); self.groups];
        let (mut marks, mut gradients) = (Vec::new(), Vec::new());
        self.searcher.each(text, |pattern, found| {
            for (sign, exact) in &self.signs[pattern.as_usize()] {
                if exact.as_ref().is_some_and(|word| text.as_bytes().get(found.clone()) != Some(word.as_bytes())) {
                    continue;
                }
                match sign {
                    Sign::Mark => marks.push((found.start as u32, found.end as u32)),
                    Sign::Gradient => gradients.push((found.start as u32, found.end as u32)),
                    Sign::Topic(topic) => shown.topics[*topic as usize] = true,
                    Sign::Check(at) => checks[*at] = true,
                    Sign::Named(at) => checks[*at] = checks[*at] || stands_alone(text, &found),
                    Sign::Communicates => shown.communicates = shown.communicates || stands_alone(text, &found),
                    Sign::Switch => shown.switches.push(found.end as u32),
                    Sign::Near(at) => near[*at].push(found.end as u32),
                    Sign::SetByName => shown.set_by_name = true,
                    Sign::Wraps => shown.wraps = shown.wraps || is_lowercase(text, &found),
                    Sign::InProject => shown.in_project = shown.in_project || is_lowercase(text, &found),
                    Sign::Plans => shown.plans = shown.plans || is_lowercase(text, &found),
                    Sign::Maps => shown.maps = shown.maps || is_lowercase(text, &found),
                }
            }
        });
        (shown.marks, shown.gradients) = (Places::new(marks), Places::new(gradients));
        for (asked, check) in checks.iter_mut().zip(OF_FUNCTIONS) {
            *asked |= check.communicates && shown.communicates;
        }
        // Where words stand is kept for the checks that may look there: one that asks for others too, which stand nowhere, is near nothing.
        let mut asked = vec![false; self.groups];
        for (_, groups) in checks.iter().zip(self.near.iter()).filter(|(check, _)| **check) {
            if !groups.iter().any(|group| near[*group].is_empty()) {
                groups.iter().for_each(|group| asked[*group] = true);
            }
        }
        near.iter_mut().zip(asked).filter(|(_, asked)| !asked).for_each(|(places, _)| places.clear());
        shown.checks = numbers(|at| checks[at]);
        shown.near = Grouped::new(&near);
        shown.groups = self.near.clone();
        shown.switches.shrink_to_fit();
        shown
    }
}

/// Whether what was found is no part of a longer name.
fn stands_alone(text: &str, found: &Range<usize>) -> bool {
    let continues = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii());
    let bytes = text.as_bytes();
    let before = found.start.checked_sub(1).and_then(|at| bytes.get(at));
    !continues(before) && !continues(bytes.get(found.end))
}

fn is_lowercase(text: &str, found: &Range<usize>) -> bool {
    text.as_bytes().get(found.clone()).is_some_and(|bytes| !bytes.iter().any(u8::is_ascii_uppercase))
}
