//! Which functions are executed on their own. In: texts of functions. Out: those that speak of gradients and reduce them, by themselves
//! or by what they call. Never: a verdict; words decide only what is looked at. Next: `mod.rs`.

use super::received;
use crate::ir::{Func, FuncId, FuncKind};
use crate::project::{ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, IndexVec};

/// Words of a file in which gradients may be scaled.
const GRADIENTS: &[&str] = &[".backward(", ".grad", "main_grad"];
/// Words of a function that is executed on its own.
const ROOTS: &[&str] = &["backward(", ".grad", "main_grad"];
const REDUCTIONS: &[&str] = &[
    "all_reduce",
    "DDP(",
    "FSDP(",
    "reduce_scatter",
    "DistributedDataParallel",
    "fully_shard",
    "FullyShardedDataParallel",
];
/// Those that wrap a module.
const WRAPPERS: &[&str] = &["DDP(", "FSDP(", "DataParallel", "fully_shard"];

/// One of these is a part of each of those.
const PARTS: &[&str] = &["reduce", "DP(", "DataParallel", "fully_shard"];

/// Calls of methods that every class has.
const METHODS: &[&str] = &["forward(", "backward(", "step("];

/// Calls between a function that is looked at and what speaks of gradients.
const MOST_BETWEEN: usize = 3;

/// How a file calls what makes objects that train.
fn trainers(rules: &RuleBook, text: &str) -> Vec<String> {
    let here = rules.trainers().iter().filter(|(package, _)| text.contains(package.as_str()));
    let called = rules.callings().map(|word| format!("{word}."));
    let made = here.map(|(_, name)| format!("{name}("));
    let mut out: Vec<String> = made.chain(called).filter(|w| text.contains(w)).collect();
    out.sort();
    out.dedup();
    out
}

fn has<S: AsRef<str>>(own: &str, words: &[S]) -> bool {
    words.iter().any(|w| own.contains(w.as_ref()))
}

/// How a function is called, unless that is what every class has.
fn called(f: &Func) -> Option<String> {
    let call = format!("{}(", f.name);
    (!METHODS.contains(&call.as_str()) && !f.name.starts_with("__")).then_some(call)
}

/// Functions of the project that reduce gradients, as they are called: `average_gradients(`.
pub fn reducers(project: &Project, rules: &RuleBook, files: &Files) -> Vec<String> {
    let mut out = Vec::new();
    for (module, m) in project.modules.iter_enumerated() {
        let text = files[project.file(module)].whole();
        let trainers = trainers(rules, text);
        let reduces = |own: &str| has(own, REDUCTIONS) || has(own, &trainers);
        if trainers.is_empty() && !(has(text, PARTS) && has(text, REDUCTIONS)) {
            continue;
        }
        for f in m.ir.funcs.iter().filter(|f| f.kind == FuncKind::Function) {
            let own = slice(text, f);
            let wraps = || has(own, WRAPPERS) && own.contains("return");
            out.extend(called(f).filter(|_| own.contains("grad") && reduces(own) || wraps()));
        }
    }
    out.sort();
    out.dedup();
    out
}

fn slice<'t>(text: &'t str, f: &Func) -> &'t str {
    text.get(f.span.start as usize..f.span.end as usize).unwrap_or("")
}

/// The functions of a module that are executed on their own: those that speak of gradients or call those that do, and that reduce
/// something or call what reduces.
pub fn roots(project: &Project, rules: &RuleBook, files: &Files, reducers: &[String], module: ModuleId) -> Vec<FuncId> {
    let text = files[project.file(module)].whole();
    let shows = text.contains("all_reduce") && text.contains("loss") && text.contains(".item()");
    if !has(text, GRADIENTS) && !shows {
        return Vec::new();
    }
    // Few files have any of the words; functions are asked for those that theirs has.
    let trainers = trainers(rules, text);
    let known = REDUCTIONS.iter().copied().chain(reducers.iter().map(String::as_str)).filter(|w| text.contains(w));
    let words: Vec<&str> = known.chain(trainers.iter().map(String::as_str)).collect();
    let pipeline = received::is_concerned(project, files, module);
    if words.is_empty() && !pipeline {
        return Vec::new();
    }
    let funcs = &project.modules[module].ir.funcs;
    let functions = funcs.iter_enumerated().filter(|(_, f)| f.kind == FuncKind::Function);
    let all: Vec<(FuncId, &str)> = functions.map(|(id, f)| (id, slice(text, f))).collect();
    let names = |of: &dyn Fn(&str) -> bool| -> Vec<String> {
        let names = all.iter().filter(|(_, own)| of(own)).map(|(id, _)| format!("{}(", funcs[*id].name));
        names.filter(|n| !n.starts_with("__")).collect()
    };
    let reduces = |own: &str| has(own, &words);
    // Those that return what they wrap are wrappers themselves.
    let wraps = |own: &str| (has(own, WRAPPERS) || has(own, &trainers)) && own.contains("return");
    let mut reducing = names(&|own| has(own, ROOTS) && reduces(own));
    reducing.extend(names(&wraps));
    let mut speaking = names(&|own| has(own, ROOTS));
    for _ in 1..MOST_BETWEEN {
        let more: Vec<String> = names(&|own| has(own, &speaking))
            .into_iter()
            .filter(|n| !speaking.contains(n) && !METHODS.contains(&n.as_str()))
            .collect();
        if more.is_empty() {
            break;
        }
        speaking.extend(more);
    }
    let is_root = |id: &FuncId, own: &str| {
        let speaks = || has(own, ROOTS) || has(own, &speaking) || own.contains("all_reduce") && own.contains("loss");
        let made = || {
            class_reduces(text, funcs, *id, &[&words, &reducing.iter().map(String::as_str).collect::<Vec<_>>()])
                || pipeline && own.contains("recv(")
        };
        (reduces(own) || has(own, &reducing) || made()) && speaks()
    };
    all.iter().filter(|(id, own)| is_root(id, own)).map(|(id, _)| *id).collect()
}

/// The functions of a module that speak of losses.
pub fn losses(project: &Project, files: &Files, module: ModuleId) -> Vec<FuncId> {
    let text = files[project.file(module)].whole();
    let funcs = project.modules[module].ir.funcs.iter_enumerated();
    let speak = funcs.filter(|(_, f)| f.kind == FuncKind::Function && slice(text, f).contains("loss"));
    speak.map(|(id, _)| id).collect()
}

/// Whether the constructor of the class of a method wraps or reduces, by itself or by the method that it calls.
fn class_reduces(text: &str, funcs: &IndexVec<FuncId, Func>, id: FuncId, words: &[&[&str]]) -> bool {
    let Some(class) = funcs.get(id).and_then(|f| f.class) else { return false };
    let own = |name: &str| funcs.iter().find(|f| f.class == Some(class) && f.name == name);
    let reduces = |f: &Func| words.iter().any(|w| has(slice(text, f), w));
    let Some(init) = own("__init__") else { return false };
    let called = |f: &&Func| slice(text, init).contains(&format!("self.{}(", f.name));
    reduces(init) || funcs.iter().filter(|f| f.class == Some(class)).filter(called).any(reduces)
}
