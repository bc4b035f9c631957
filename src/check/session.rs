//! A project that is checked again and again while its files are edited. In: files, then versions of their texts. Out: the same findings as
//! [`check`](super::check) has for the same files, and types of single files. Never: reading files, or a result that depends on what the
//! texts were before. Next: `layout.rs`; `infer/memo.rs`, which keeps the results.

use super::layout::Layout;
use super::{Want, diagnostics_of, settings, shown_root};
use crate::config::Config;
use crate::diagnostics::{Known, describe_known};
use crate::infer::finding::Finding;
use crate::infer::memo::{Memo, Stopped};
use crate::infer::model_axis;
use crate::infer::{Output, Settings, Taken, infer, types_in};
use crate::ir::{Class, FileIr, Func, FuncKind};
use crate::project::{ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::reads::{Read, blocks, number};
use crate::source::{Diagnostic, File, FileId, Files, Idx, Name};
use crate::syntax::{self, Parsed, SyntaxProblem};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than this nobody is made to wait for a first look.
const LONG: Duration = Duration::from_millis(25);

/// A project in memory.
pub struct Session {
    config: Config,
    rules: Arc<RuleBook>,
    /// With whitespace at the ends of blank lines; lines and columns are those of the texts.
    files: Files,
    layouts: Vec<Layout>,
    problems: Vec<Vec<SyntaxProblem>>,
    project: Project,
    settings: Settings,
    found: Memo,
    typed: Memo,
    known: Known,
    /// What changed since the last check.
    changed: Vec<Read>,
    stop: Arc<AtomicBool>,
}

impl Session {
    /// Reads the project. A check ends early once `stop` is set.
    pub fn new(config: Config, rules: Arc<RuleBook>, sources: Files, stop: Arc<AtomicBool>) -> Session {
        let ids: Vec<FileId> = sources.ids().collect();
        let read: Vec<(Layout, String, Parsed)> = ids
            .par_iter()
            .map(|id| {
                let layout = Layout::new(sources[*id].text.to_string());
                let spaced = layout.spaced();
                let parsed = syntax::parse(&spaced);
                (layout, spaced, parsed)
            })
            .collect();
        let (mut files, mut layouts, mut problems, mut irs) = (Files::default(), Vec::new(), Vec::new(), Vec::new());
        for (id, (layout, spaced, parsed)) in ids.into_iter().zip(read) {
            let source = &sources[id];
            let mut file = File::new(source.path.clone(), spaced);
            (file.reported, file.unreadable) = (source.reported, source.unreadable.clone());
            irs.push((files.add(file), parsed.ir));
            layouts.push(layout);
            problems.push(parsed.problems);
        }
        let mut project = Project::new(&files, irs, &source_roots(&config));
        project.watched = true;
        let (found, typed) = (Memo::new(stop.clone()), Memo::new(stop.clone()));
        let settings = Settings::default();
        let (known, changed) = (Known::default(), Vec::new());
        Session { config, rules, files, layouts, problems, project, settings, found, typed, known, changed, stop }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }
    pub fn rules(&self) -> &RuleBook {
        &self.rules
    }
    pub fn project(&self) -> &Project {
        &self.project
    }
    pub fn files(&self) -> &Files {
        &self.files
    }
    /// The text of a file as it was given.
    pub fn text(&self, file: FileId) -> &str {
        self.layouts.get(file.index()).map_or("", Layout::text)
    }
    pub fn module_of(&self, file: FileId) -> Option<ModuleId> {
        self.project.module_of(file)
    }

    /// Gives a file another text.
    pub fn edit(&mut self, id: FileId, text: String) {
        if self.text(id) == text && self.files[id].unreadable.is_none() {
            return;
        }
        let Some(module) = self.project.module_of(id) else { return };
        let layout = self.layouts[id.index()].edited(text);
        let spaced = layout.spaced();
        let parsed = syntax::parse(&spaced);
        let mut file = File::new(self.files[id].path.clone(), spaced);
        file.reported = self.files[id].reported;
        self.layouts[id.index()] = layout;
        self.problems[id.index()] = parsed.problems;
        let before = self.files.replace(id, file);
        self.note_text(id, &before.text);
        let stars = self.project.stars(module).to_vec();
        let (old, names) = self.project.replace(module, parsed.ir);
        let new = self.project.modules[module].ir.clone();
        self.changed.extend([Read::Module(module.0), Read::Modules]);
        self.note_functions(module, &old, &new);
        if !names.is_empty() {
            self.changed.push(Read::Names(module.0));
            self.changed.extend(names.iter().map(|name| Read::Name(module.0, number(name))));
        }
        let renames = names.iter().any(|name| model_axis::is_named_by(name));
        if renames || old.directives != new.directives || stars != self.project.stars(module) {
            self.forget();
        } else if !names.is_empty() {
            self.check_names();
        }
    }

    /// Notes which parts of a text changed.
    fn note_text(&mut self, id: FileId, before: &str) {
        let after = &self.files[id].text;
        self.changed.push(Read::Text(id.0));
        let (a, b) = (before.as_bytes(), after.as_bytes());
        let head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        let longest = a.len().max(b.len());
        let tail = match a.len() == b.len() {
            true => a.iter().rev().zip(b.iter().rev()).take(longest - head).take_while(|(x, y)| x == y).count(),
            false => 0,
        };
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.changed.extend(blocks(offset(head), offset(longest - tail)).map(|block| Read::Block(id.0, block)));
        for (number, word) in self.files.said() {
            let (times, now) = (before.matches(&word).count(), after.matches(&word).count());
            if times != now {
                self.changed.push(Read::Says(number));
            }
            if (times == 0) != (now == 0) {
                self.changed.push(Read::SaysIn(id.0, number));
            }
        }
    }

    /// Notes which functions and classes of a module changed, and which names functions have.
    fn note_functions(&mut self, module: ModuleId, old: &FileIr, new: &FileIr) {
        let ids = if old.funcs.len() > new.funcs.len() { old.funcs.ids() } else { new.funcs.ids() };
        for func in ids.filter(|id| !same_function(old.funcs.get(*id), new.funcs.get(*id))) {
            self.changed.push(Read::Func(module.0, func.0));
        }
        let ids = if old.classes.len() > new.classes.len() { old.classes.ids() } else { new.classes.ids() };
        for class in ids.filter(|id| !same_class(old.classes.get(*id), new.classes.get(*id))) {
            self.changed.push(Read::Class(module.0, class.0));
        }
        let by_name = |ir: &FileIr| {
            let mut out: FxHashMap<Name, Vec<u32>> = FxHashMap::default();
            for (id, f) in ir.funcs.iter_enumerated().filter(|(_, f)| f.kind == FuncKind::Function) {
                out.entry(f.name.clone()).or_default().push(id.0);
            }
            out
        };
        let (old, new) = (by_name(old), by_name(new));
        self.changed.extend(crate::infer::memo::differing(&old, &new).map(|name| Read::Named(number(name))));
    }

    /// Starts anew if the modules are now called otherwise.
    fn check_names(&mut self) {
        let names = self.project.names(&self.files, &source_roots(&self.config));
        let same = self.project.modules.ids().zip(&names).all(|(id, name)| self.project.name(id) == name);
        if !same {
            let irs = self.project.modules.iter().map(|m| (m.file, (*m.ir).clone())).collect();
            self.project = Project::new(&self.files, irs, &source_roots(&self.config));
            self.project.watched = true;
            self.forget();
        }
    }

    /// Forgets all results.
    fn forget(&mut self) {
        self.changed.clear();
        self.found = Memo::new(self.stop.clone());
        self.typed = Memo::new(self.stop.clone());
    }

    /// All findings, levels not applied; nothing if the check was stopped.
    pub fn check(&mut self) -> Option<Vec<Diagnostic>> {
        let output = self.infer()?;
        let (files, known) = (&self.files, &mut self.known);
        known.turn();
        let words = |finding: &Finding| describe_known(files, finding, known);
        Some(diagnostics_of(&self.config, (&self.project, files), &self.problems, &output, words))
    }

    /// A first look at files that are edited, where a whole check will take long: functions outside them are not executed again, so
    /// that what these say may be of an earlier version. Nothing where the check itself is as fast, or if it was stopped.
    pub fn glance(&mut self, files: &[FileId]) -> Option<Vec<Diagnostic>> {
        let modules: Vec<ModuleId> = files.iter().filter_map(|file| self.project.module_of(*file)).collect();
        self.let_go();
        if self.found.awaited(&modules) < LONG {
            return None;
        }
        self.found.hurry(Some(modules));
        let found = self.check();
        self.found.hurry(None);
        found
    }

    /// Lets go of results about what changed.
    fn let_go(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        self.found.forget(&changed);
        self.typed.forget(&changed);
    }

    fn infer(&mut self) -> Option<Output> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        self.let_go();
        self.settings = settings(&self.config, Want::Findings);
        let (project, rules, files, memo) = (&self.project, &*self.rules, &self.files, &self.found);
        let settings = &mut self.settings;
        unless_stopped(|| {
            let taken = Taken::later(rules, files, Some(memo));
            infer(project, rules, files, settings, &taken, Some(memo))
        })
    }

    /// The types in a file, after a check; nothing if that was stopped.
    pub fn types(&mut self, file: FileId) -> Option<Output> {
        let module = self.project.module_of(file)?;
        self.typed.forget(&self.found.moved());
        let reach = self.found.reaching(module);
        let (project, rules, files) = (&self.project, &*self.rules, &self.files);
        unless_stopped(|| types_in(project, rules, files, &self.settings, &self.typed, (module, &reach)))
    }
}

/// Whether two versions of a function are the same. Where a module or a class ends depends on its last function, whose text is noted.
fn same_function(a: Option<&Func>, b: Option<&Func>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) if a.kind == b.kind && matches!(a.kind, FuncKind::Module | FuncKind::ClassBody) => {
            a.span.start == b.span.start && *a == Func { span: a.span, ..b.clone() }
        }
        (a, b) => a == b,
    }
}

fn same_class(a: Option<&Class>, b: Option<&Class>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.span.start == b.span.start && *a == Class { span: a.span, ..b.clone() },
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// The result of a run; nothing if it was stopped.
fn unless_stopped<T>(run: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Some(value),
        Err(why) if why.is::<Stopped>() => None,
        Err(why) => resume_unwind(why),
    }
}

fn source_roots(config: &Config) -> Vec<String> {
    config.src.iter().map(|path| shown_root(config, path)).collect()
}
