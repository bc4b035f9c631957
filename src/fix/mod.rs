//! Repairs that are checked before they are kept. In: a project, its findings with their edits. Out: new texts, and what is left. Never: a
//! file on disk; an edit after which the project has a new finding, or no fewer. Next: `text.rs`, `guard.rs`; `cli/fix.rs` writes files.

mod annotate;
mod guard;
mod suppress;
mod text;

pub use annotate::annotate;
pub use suppress::suppress;
pub use text::{apply, replaced, unified_diff};

use crate::check::{Want, check};
use crate::config::Config;
use crate::rules::RuleBook;
use crate::source::{Applicability, Diagnostic, Edit, FileId, Files, Place, Severity};
use guard::{Known, known, no_worse};
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// Checks of the whole project that one run may make; a repair beyond them is left for the next run.
const MOST_CHECKS: usize = 600;

/// Which repairs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Those that are certain: one repair, and only one, silences the finding and all that hangs together with it.
    Safe,
    /// The likeliest of those that leave fewer findings.
    Unsafe,
}

/// What repairs came to.
#[derive(Debug)]
pub struct Repaired {
    /// The files with their new texts.
    pub files: Files,
    /// What is found in them.
    pub left: Vec<Diagnostic>,
    /// Codes of the findings that were repaired, in the order of the repairs.
    pub repaired: Vec<&'static str>,
    /// Files that differ from what was given.
    pub changed: Vec<FileId>,
    /// Whether the limit of checks ended the search.
    pub exhausted: bool,
}

/// A project at one point of the search.
struct State {
    files: Files,
    found: Vec<Diagnostic>,
    repaired: Vec<&'static str>,
    /// What is known of its variables, once that was asked.
    known: OnceCell<Known>,
}

struct Search<'a> {
    /// Which findings are to be repaired.
    wanted: &'a Config,
    /// Which findings may not come up: also those that nobody asked for.
    config: &'a Config,
    rules: &'a RuleBook,
    policy: Policy,
    checks: usize,
}

/// Repairs what a run reports.
pub fn repair(config: &Config, rules: &RuleBook, files: &Files, policy: Policy) -> Repaired {
    let all = Config { select: Vec::new(), ignore: Vec::new(), ..config.clone() };
    let mut search = Search { wanted: config, config: &all, rules, policy, checks: 0 };
    let found = findings(&all, rules, files);
    let clusters = clusters(files, &found);
    let mut state = State { files: replaced(files, &[]), found, repaired: Vec::new(), known: OnceCell::new() };
    search.settle(&mut state, |_, finding| !is_flow(finding));
    for cluster in clusters {
        let touches = |files: &Files, finding: &Diagnostic| {
            is_flow(finding) && cluster.contains(&definition(files, finding.place))
        };
        let before = State {
            files: replaced(&state.files, &[]),
            found: state.found.clone(),
            repaired: state.repaired.clone(),
            known: OnceCell::new(),
        };
        search.settle(&mut state, touches);
        // As long as something that hangs together with it is wrong, the first repair may have been the wrong one.
        let unsettled = state.found.iter().any(|f| touches(&state.files, f) && f.severity == Severity::Error);
        if policy == Policy::Safe && unsettled {
            state = before;
        }
    }
    let differs = |id: &FileId| files[*id].text != state.files[*id].text;
    let changed = files.ids().filter(differs).collect();
    let exhausted = search.checks >= MOST_CHECKS;
    let left = at_levels(config, &state.files, state.found);
    Repaired { files: state.files, left, repaired: state.repaired, changed, exhausted }
}

/// The findings of a project, at the levels of its configuration.
pub fn findings(config: &Config, rules: &RuleBook, files: &Files) -> Vec<Diagnostic> {
    at_levels(config, files, check(config, rules, files, Want::Findings).diagnostics)
}

/// Findings as the configuration reports them.
pub fn at_levels(config: &Config, files: &Files, found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let level = |found: &Diagnostic| config.severity(found.code, found.severity, &files[found.place.file].path);
    found.into_iter().filter_map(|one| level(&one).map(|severity| Diagnostic { severity, ..one })).collect()
}

/// Whether a finding is about types that flow: one cause shows in several places.
fn is_flow(finding: &Diagnostic) -> bool {
    ["SPMD1", "SPMD2", "SPMD301", "SPMD305", "SPMD50"].iter().any(|family| finding.code.starts_with(family))
}

/// A definition at the top of a file: the file, and the text of its first line, which edits inside leave alone.
type Definition = (FileId, String);

/// The definition around a place.
fn definition(files: &Files, place: Place) -> Definition {
    let file = &files[place.file];
    let mut line = file.lines().line(place.span.start);
    let text = |line: u32| file.slice(file.lines().range(line, &file.text));
    // A comment is about what follows.
    while text(line).starts_with('#') && (line as usize) + 1 < file.lines().count() {
        line += 1;
    }
    loop {
        let text = text(line);
        let is_top = !text.trim().is_empty() && !text.starts_with([' ', '\t', ')', ']', '}', '#']);
        if is_top || line == 0 {
            return (place.file, text.trim_end().to_string());
        }
        line -= 1;
    }
}

/// Definitions whose findings hang together: the places that one finding names.
fn clusters(files: &Files, found: &[Diagnostic]) -> Vec<BTreeSet<Definition>> {
    let mut out: Vec<BTreeSet<Definition>> = Vec::new();
    for finding in found.iter().filter(|f| is_flow(f)) {
        let mut all: BTreeSet<Definition> = finding.labels.iter().map(|l| definition(files, l.place)).collect();
        all.insert(definition(files, finding.place));
        let (joined, apart): (Vec<_>, Vec<_>) = out.into_iter().partition(|c| !c.is_disjoint(&all));
        out = apart;
        all.extend(joined.into_iter().flatten());
        out.push(all);
    }
    out.sort();
    out
}

impl Search<'_> {
    /// Repairs one finding after the other, until none is left that can be.
    fn settle(&mut self, state: &mut State, wanted: impl Fn(&Files, &Diagnostic) -> bool) {
        let mut given_up: BTreeSet<(FileId, &'static str, String)> = BTreeSet::new();
        loop {
            let open = state.found.iter().find(|finding| {
                wanted(&state.files, finding)
                    && self.may_fix(state, finding)
                    && !given_up.contains(&identity(&state.files, finding))
            });
            let Some(finding) = open.cloned() else { return };
            match self.best(state, &finding) {
                Some((files, found)) => {
                    state.files = files;
                    state.found = found;
                    state.known = OnceCell::new();
                    state.repaired.push(finding.code);
                    // What was impossible before may be possible now.
                    given_up.clear();
                }
                None => {
                    given_up.insert(identity(&state.files, &finding));
                }
            }
        }
    }

    fn may_fix(&self, state: &State, finding: &Diagnostic) -> bool {
        let path = &state.files[finding.place.file].path;
        let asked = self.wanted.severity(finding.code, finding.severity, path).is_some();
        asked
            && finding
                .fix
                .as_ref()
                .is_some_and(|f| self.policy == Policy::Unsafe || f.applicability == Applicability::Safe)
    }

    /// The repair that leaves the fewest findings; none if it is not the only one of its kind and certainty is asked for.
    fn best(&mut self, state: &State, finding: &Diagnostic) -> Option<(Files, Vec<Diagnostic>)> {
        let fix = finding.fix.as_ref()?;
        let mut found: Vec<(Files, Vec<Diagnostic>)> = Vec::new();
        let first =
            std::iter::once(&fix.edits).chain(&fix.variants).find_map(|edits| self.attempt(state, finding, edits));
        found.extend(first);
        for edits in &fix.rivals {
            let Some(result) = self.attempt(state, finding, edits) else { continue };
            let same = found.iter().any(|(files, _)| files.ids().all(|id| files[id].text == result.0[id].text));
            if !same {
                found.push(result);
            }
        }
        let fewest = found.iter().map(|(_, left)| left.len()).min()?;
        let mut best = found.into_iter().filter(|(_, left)| left.len() == fewest);
        let (one, more) = (best.next()?, best.next());
        (self.policy == Policy::Unsafe || more.is_none()).then_some(one)
    }

    /// The project with edits, if it is better for them.
    fn attempt(&mut self, state: &State, finding: &Diagnostic, edits: &[Edit]) -> Option<(Files, Vec<Diagnostic>)> {
        let touched =
            |edit: &Edit| state.files[edit.place.file].reported && state.files[edit.place.file].unreadable.is_none();
        if self.checks >= MOST_CHECKS || edits.is_empty() || !edits.iter().all(touched) {
            return None;
        }
        // A file of which nothing is reported is not touched.
        if !edits.iter().all(|edit| state.found.iter().any(|f| f.place.file == edit.place.file)) {
            return None;
        }
        let files = apply(&state.files, edits)?;
        self.checks += 1;
        let found = findings(self.config, self.rules, &files);
        let fewer = found.len() < state.found.len();
        let gone = !remains(&found, finding, edits);
        if !fewer || !gone || !new_ones(&state.found, &found, edits).is_empty() {
            return None;
        }
        if self.policy == Policy::Unsafe && !is_flow(finding) {
            return Some((files, found));
        }
        let before = state.known.get_or_init(|| known(self.config, self.rules, &state.files));
        let after = known(self.config, self.rules, &files);
        no_worse(before, &after, &files, edits).then_some((files, found))
    }
}

/// What makes a finding the same one in the next round.
fn identity(files: &Files, finding: &Diagnostic) -> (FileId, &'static str, String) {
    let line = files[finding.place.file].position(finding.place.span.start).line;
    (finding.place.file, finding.code, format!("{line} {}", finding.message))
}

/// Where a place is after edits.
fn moved(place: Place, edits: &[Edit]) -> u32 {
    let mut at = i64::from(place.span.start);
    for edit in edits.iter().filter(|e| e.place.file == place.file && e.place.span.end <= place.span.start) {
        at += edit.text.len() as i64 - i64::from(edit.place.span.len());
    }
    u32::try_from(at).unwrap_or(0)
}

fn remains(found: &[Diagnostic], finding: &Diagnostic, edits: &[Edit]) -> bool {
    let at = moved(finding.place, edits);
    found.iter().any(|f| f.code == finding.code && f.place.file == finding.place.file && f.place.span.start == at)
}

/// Findings of which the edits are the cause.
fn new_ones<'a>(old: &[Diagnostic], new: &'a [Diagnostic], edits: &[Edit]) -> Vec<&'a Diagnostic> {
    let mut left: Vec<&Diagnostic> = old.iter().collect();
    let mut out = Vec::new();
    for finding in new {
        let same = |o: &&Diagnostic| o.code == finding.code && o.place.file == finding.place.file;
        let here = left.iter().position(|o| same(o) && moved(o.place, edits) == finding.place.span.start);
        match here.or_else(|| left.iter().position(|o| same(o) && o.message == finding.message)) {
            Some(at) => {
                left.swap_remove(at);
            }
            None => out.push(finding),
        }
    }
    out
}
