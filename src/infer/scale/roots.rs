//! Which functions are executed on their own. In: texts of functions. Out: those that speak of gradients and reduce them, by themselves
//! or by what they call. Never: a verdict; words decide only what is looked at. Next: `mod.rs`.

use super::makers::prepares;
use super::received;
use crate::infer::places::{Endings, Places, find};
use crate::infer::practice::asked::{Asked, Shown, Topic};
use crate::infer::practice::near::{has_any, own_parts};
use crate::ir::{ClassId, Func, FuncId, FuncKind};
use crate::project::{ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, IndexVec};
use rustc_hash::FxHashMap;

/// Words of a file in which gradients may be scaled.
pub const GRADIENTS: &[&str] = &[".backward(", ".grad", "main_grad", "scaler(loss"];
/// Words of a function that is executed on its own.
const ROOTS: &[&str] = &["backward(", ".grad", "main_grad", "scaler(loss"];
const REDUCTIONS: &[&str] = &[
    "all_reduce",
    "DDP(",
    "FSDP(",
    "reduce_scatter",
    "DistributedDataParallel",
    "fully_shard",
    "FullyShardedDataParallel",
    "reduce_gradients(",
    "optimizer_step(",
    ".no_sync()",
];
/// Those that wrap a module.
pub const WRAPPERS: &[&str] = &["DDP(", "FSDP(", "DataParallel", "fully_shard"];

/// One of these is a part of each of those.
pub const PARTS: &[&str] = &["reduce", "DP(", "DataParallel", "fully_shard", "optimizer_step(", "no_sync()"];

/// Calls of methods that every class has.
const METHODS: &[&str] = &["forward(", "backward(", "step("];

/// Calls between a function that is looked at and what speaks of gradients.
const MOST_BETWEEN: usize = 3;

/// How a file calls what makes objects that train.
fn trainers(rules: &RuleBook, shown: &Shown, text: &str) -> Vec<String> {
    if !shown.speaks_of(Topic::Trainers) {
        return Vec::new();
    }
    let here = rules.trainers().iter().filter(|(package, _)| text.contains(package.as_str()));
    let called = rules.callings().map(|word| format!("{word}."));
    let made = here.map(|(_, name)| format!("{name}("));
    let mut out: Vec<String> = made.chain(called).filter(|w| text.contains(w)).collect();
    out.sort();
    out.dedup();
    out
}

/// How a function is called, unless that is what every class has.
fn called(f: &Func) -> Option<String> {
    let call = format!("{}(", f.name);
    (!METHODS.contains(&call.as_str()) && !f.name.starts_with("__")).then_some(call)
}

/// Functions of a project that reduce gradients, as they are called: `average_gradients(`.
#[derive(Debug, Default)]
pub struct Reducers {
    pub calls: Vec<String>,
    endings: Endings,
}

impl Reducers {
    pub fn new<'c>(calls: impl Iterator<Item = &'c String>) -> Reducers {
        let mut calls: Vec<String> = calls.cloned().collect();
        calls.sort();
        calls.dedup();
        let mut endings = Endings::default();
        calls.iter().for_each(|call| {
            endings.add(call.trim_end_matches('('));
        });
        Reducers { calls, endings }
    }
}

/// Those of one module.
pub fn reducers(project: &Project, rules: &RuleBook, files: &Files, asked: &Asked, module: ModuleId) -> Vec<String> {
    let text = files[project.file(module)].whole();
    let shown = asked.shown(module, text);
    let parts = shown.speaks_of(Topic::Reductions);
    if !parts && !shown.speaks_of(Topic::Gradients) {
        return Vec::new();
    }
    let trainers = trainers(rules, shown, text);
    if trainers.is_empty() && !(parts && has_any(text, REDUCTIONS)) {
        return Vec::new();
    }
    let reduces = Places::new([find(text, REDUCTIONS), find(text, &trainers)].concat());
    let wraps = Places::new(find(text, WRAPPERS));
    let mut out = Vec::new();
    for f in project.modules[module].ir.funcs.iter().filter(|f| f.kind == FuncKind::Function) {
        let own = slice(text, f);
        let sums = || reduces.inside(f.span) && own.contains("grad");
        if !own.is_empty() && (wraps.inside(f.span) && own.contains("return") || sums()) {
            out.extend(called(f));
        }
    }
    // An object whose constructor has a hook reduce.
    for class in project.modules[module].ir.classes.iter() {
        let own = text.get(class.span.start as usize..class.span.end as usize).unwrap_or_default();
        if reduces.inside(class.span) && own.contains("register_") && own.contains("_hook(") {
            out.push(format!("{}(", class.name));
        }
    }
    out
}

fn slice<'t>(text: &'t str, f: &Func) -> &'t str {
    text.get(f.span.start as usize..f.span.end as usize).unwrap_or("")
}

/// What is executed on its own of a module: functions that speak of gradients or call those that do, and that reduce something or call
/// what reduces.
#[derive(Debug, Default)]
pub struct Roots {
    pub funcs: Vec<FuncId>,
    /// Whether the module's own statements are such a function.
    pub body: bool,
}

/// Those of one module.
pub fn roots(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    (reducers, shown): (&Reducers, &Shown),
    module: ModuleId,
) -> Roots {
    let text = files[project.file(module)].whole();
    let shows = || text.contains("all_reduce") && text.contains("loss") && text.contains(".item()");
    if !(shown.speaks_of(Topic::Scaled) || shown.in_project && shows()) {
        return Roots::default();
    }
    let trainers = trainers(rules, shown, text);
    let made = find(text, &trainers);
    let mut reduces = [find(text, REDUCTIONS), made.clone()].concat();
    reducers.endings.each(text, |_, start, end| reduces.push((start, end)));
    let pipeline = shown.speaks_of(Topic::Receives) && received::is_concerned(project, files, module);
    if reduces.is_empty() && !pipeline {
        return Roots::default();
    }
    let funcs = &project.modules[module].ir.funcs;
    let file = File {
        text,
        funcs,
        reduces: Places::new(reduces),
        wraps: Places::new([find(text, WRAPPERS), made].concat()),
        speaks: Places::new(find(text, ROOTS)),
        pipeline,
    };
    file.roots()
}

/// What stands where in the text of a module.
struct File<'t> {
    text: &'t str,
    funcs: &'t IndexVec<FuncId, Func>,
    reduces: Places,
    wraps: Places,
    speaks: Places,
    pipeline: bool,
}

impl File<'_> {
    fn roots(&self) -> Roots {
        let functions = self.funcs.iter_enumerated().filter(|(_, f)| f.kind == FuncKind::Function);
        let all: Vec<(FuncId, &Func)> = functions.filter(|(_, f)| !slice(self.text, f).is_empty()).collect();
        // The functions of a file by name, and where they are called in it.
        let mut endings = Endings::default();
        let names: Vec<Option<usize>> =
            all.iter().map(|(_, f)| (!f.name.starts_with("__")).then(|| endings.add(&f.name))).collect();
        let mut calls: Vec<(usize, u32, u32)> = Vec::new();
        endings.each(self.text, |name, start, end| calls.push((name, start, end)));
        let of = |known: &[bool]| {
            Places::new(calls.iter().filter(|(name, ..)| known[*name]).map(|(_, start, end)| (*start, *end)).collect())
        };
        let named = |is: &dyn Fn(&Func) -> bool| {
            let mut known = vec![false; endings.len()];
            for ((_, f), name) in all.iter().zip(&names) {
                if let Some(name) = name
                    && !known[*name]
                {
                    known[*name] = is(f);
                }
            }
            known
        };
        // Those that return what they wrap are wrappers themselves.
        let wraps = |f: &Func| self.wraps.inside(f.span) && slice(self.text, f).contains("return");
        let reducing = of(&named(&|f| self.speaks.inside(f.span) && self.reduces.inside(f.span) || wraps(f)));
        let mut speaking = named(&|f| self.speaks.inside(f.span));
        for _ in 1..MOST_BETWEEN {
            let places = of(&speaking);
            let method = |f: &Func| METHODS.iter().any(|m| m.strip_suffix('(') == Some(f.name.as_str()));
            let more = named(&|f| !method(f) && places.inside(f.span));
            if !more.iter().zip(&speaking).any(|(more, known)| *more && !known) {
                break;
            }
            speaking.iter_mut().zip(more).for_each(|(known, more)| *known |= more);
        }
        let speaking = of(&speaking);
        let mut classes: FxHashMap<ClassId, bool> = FxHashMap::default();
        let mut is_root = |f: &Func| {
            let own = slice(self.text, f);
            let speaks = self.speaks.inside(f.span)
                || speaking.inside(f.span)
                || own.contains("all_reduce") && own.contains("loss");
            let reduces = |f: &Func| self.reduces.inside(f.span) || reducing.inside(f.span);
            let class = |class| *classes.entry(class).or_insert_with(|| self.class_reduces(class, &reduces));
            speaks && (reduces(f) || f.class.is_some_and(class) || self.pipeline && own.contains("recv("))
        };
        let funcs = all.iter().filter(|(_, f)| is_root(f)).map(|(id, _)| *id).collect();
        let own = own_parts(self.funcs);
        let outside = |places: &Places| own.iter().any(|part| places.inside(*part));
        let body = (outside(&self.speaks) || outside(&speaking)) && (outside(&self.reduces) || outside(&reducing));
        Roots { funcs, body }
    }

    /// Whether the constructor of a class wraps or reduces, by itself or by a method that it calls, or the method that prepares its objects.
    fn class_reduces(&self, class: ClassId, reduces: &dyn Fn(&Func) -> bool) -> bool {
        let methods = || self.funcs.iter().filter(|f| f.class == Some(class));
        if methods().any(|f| self.wraps.inside(f.span) && prepares(&f.name, slice(self.text, f))) {
            return true;
        }
        let Some(init) = methods().find(|f| f.name == "__init__") else { return false };
        let reduces = |f: &Func| !slice(self.text, f).is_empty() && reduces(f);
        let own = slice(self.text, init);
        reduces(init) || methods().any(|f| reduces(f) && own.contains(&format!("self.{}(", f.name)))
    }
}

/// The functions of a module that speak of losses.
pub fn losses(project: &Project, files: &Files, module: ModuleId) -> Vec<FuncId> {
    let text = files[project.file(module)].whole();
    let funcs = project.modules[module].ir.funcs.iter_enumerated();
    let speak = funcs.filter(|(_, f)| f.kind == FuncKind::Function && slice(text, f).contains("loss"));
    speak.map(|(id, _)| id).collect()
}
