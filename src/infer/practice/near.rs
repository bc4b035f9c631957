//! What stands near a function: comments and docstrings, variables of enclosing functions and of the module, attributes of its class,
//! callers in the same file. In: a view. Out: expressions and texts. Never: evaluation across branches: a name bound twice stays a name.
//! Next: `local_gradient.rs` and the other checks that ask.

use super::beside::{Assigned, Setters, attributes_set};
use super::expr::Expr;
use super::view::View;
use crate::infer::limits::NO_BOUND;
use crate::infer::places::left_by;
use crate::ir::{ClassId, Const, Func, FuncId, FuncKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Resolved};
use crate::source::{Files, Idx, IndexVec, Name, Place, Span};
use rustc_hash::FxHashSet;
use std::rc::Rc;

/// A comment or docstring.
pub struct Note {
    /// In lowercase.
    pub text: String,
    pub place: Option<Place>,
}

/// The attribute of the context that holds what the forward saved.
pub const SAVED: &str = "saved_tensors";

/// How far a name is followed.
const MAX_STEPS: usize = 12;

/// Comments inside a span of a module, except those for tools.
pub fn comments(view: &View<'_>, span: Span) -> Vec<Note> {
    let text = view.files[view.project.file(view.at.module)].slice(span);
    let mut out = Vec::new();
    let mut start = 0usize;
    for line in text.split_inclusive('\n') {
        if let Some(at) = comment_start(line) {
            let words = line[at + 1..].trim();
            let from = span.start + (start + at) as u32;
            let place = view.spot(Span::new(from, from + line[at..].trim_end().len() as u32));
            if !words.starts_with("spmd:") && !words.starts_with("noqa") && !words.starts_with("BUG") {
                out.push(Note { text: words.to_lowercase(), place: Some(place) });
            }
        }
        start += line.len();
    }
    out
}

/// Where the comment of a line begins.
fn comment_start(line: &str) -> Option<usize> {
    if !line.contains('#') {
        return None;
    }
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            _ => {}
        }
    }
    None
}

/// Comments and docstrings of a function, of the functions around it, and the docstrings of its class and module.
pub fn notes(view: &View<'_>) -> Vec<Note> {
    let module = &view.project.modules[view.at.module].ir;
    let mut out = Vec::new();
    let mut at = Some(view.at.func);
    let mut outermost = view.at.func;
    while let Some(func) = at {
        let f = &module.funcs[func];
        if f.kind == FuncKind::Function || f.kind == FuncKind::Lambda {
            outermost = func;
        }
        if let Some(text) = f.documented(&view.files[view.project.file(view.at.module)]) {
            out.push(Note { text: text.to_lowercase(), place: None });
        }
        at = f.parent;
    }
    out.extend(comments(view, module.funcs[outermost].span));
    out
}

/// The parts of a file that are in no function, in order.
pub fn own_parts(funcs: &IndexVec<FuncId, Func>) -> Vec<Span> {
    let functions = funcs.iter().filter(|f| f.kind == FuncKind::Function).map(|f| f.span);
    left_by(functions.collect(), funcs[FuncId::from_index(0)].span)
}

/// The lines of a text that rule something out: assertions, and tests of which the next line raises.
pub fn refusals(text: &str) -> impl Iterator<Item = &str> {
    let mut lines = text.lines().map(str::trim_start).peekable();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let raises = lines.peek().is_some_and(|next| next.starts_with("raise"));
            if line.starts_with("assert") || line.starts_with("if ") && raises {
                return Some(line);
            }
        }
    })
}

/// The text of a function without comments and sentences, in lowercase.
pub fn code(view: &View<'_>, span: Span) -> String {
    bare(view.files[view.project.file(view.at.module)].slice(span))
}

/// A text without its comments and without what strings of several words or lines say, in lowercase. Strings of one word may be names.
pub fn bare(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.strip_suffix('\n').unwrap_or(text);
    while let Some(at) = rest.find(['#', '"', '\'', '\r']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let quote = &from[..1];
        rest = match quote {
            "#" => &from[from.find('\n').unwrap_or(from.len())..],
            "\r" => &from[1..],
            _ => {
                let quote = match from.get(..3) {
                    Some(triple @ ("\"\"\"" | "'''")) => triple,
                    _ => quote,
                };
                let (said, after) = from.split_at(string_end(from, quote));
                match quote.len() == 3 || said.trim_matches(['"', '\'']).contains(char::is_whitespace) {
                    true => out.extend([quote, quote]),
                    false => out.push_str(said),
                }
                after
            }
        };
    }
    out.push_str(rest);
    out.make_ascii_lowercase();
    out
}

/// Where the string ends that a text begins with: behind its closing quotes, at the end of its line, or of the text.
fn string_end(text: &str, quote: &str) -> usize {
    let mut from = quote.len();
    while let Some(at) = text[from..].find(['\\', '\n', '"', '\'']) {
        let here = from + at;
        let rest = &text[here..];
        match rest.as_bytes()[0] {
            b'\\' => from = here + 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            b'\n' if quote.len() == 1 => return here,
            _ if rest.starts_with(quote) => return here + quote.len(),
            _ => from = here + 1,
        }
    }
    text.len()
}

/// Whether a text has one of these words, or parts of words.
pub fn has_any<S: AsRef<str>>(text: &str, words: &[S]) -> bool {
    words.iter().any(|word| text.contains(word.as_ref()))
}

/// Whether a text speaks of one of these and does not deny it: `not cfg.sequence_parallel`, `without sequence parallelism`.
pub fn speaks_of(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| {
        text.match_indices(word).any(|(at, _)| {
            // Behind the name that it is an attribute of.
            let before =
                text[..at].trim_end_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.')).trim_end();
            let denies =
                |no: &str| before.ends_with(no) && !before[..before.len() - no.len()].ends_with(char::is_alphanumeric);
            !["not", "without", "no", "not under", "not with"].into_iter().any(denies) && !is_denied_after(&text[at..])
        })
    })
}

/// `fsdp is not used`
fn is_denied_after(text: &str) -> bool {
    let sentence = text.split(['.', ',', ';', '\n']).next().unwrap_or_default();
    ["is not used", "is off", "not used", "is disabled"].iter().any(|no| sentence.contains(no))
}

/// Methods that tell somebody something.
const TELLS: &[&str] = &["debug", "info", "warning", "warn", "error", "exception", "log", "info_rank0", "warning_once"];

/// Whether a step prints, logs or reads the clock, and does nothing else.
pub fn only_tells(view: &View<'_>, step: usize) -> bool {
    let Some(value) = view.value(step) else { return false };
    let logs = |base: &Operand| match view.through(base) {
        Expr::Local(local) => view.local_name(local).contains("log"),
        Expr::Call { callee, .. } => callee.last_name() == Some("getLogger"),
        other => other.last_name().is_some_and(|name| name.to_lowercase().contains("log")),
    };
    match value {
        Rvalue::CallMethod { base, name, .. } if TELLS.contains(&name.as_str()) && logs(base) => true,
        Rvalue::Call { .. } | Rvalue::CallMethod { .. } => view.callee(value).is_some_and(|path| {
            let path = path.trim_start_matches("builtins.");
            matches!(path, "print" | "warnings.warn" | "logging.getLogger")
                || matches!(path, "time.time" | "time.perf_counter" | "time.monotonic")
        }),
        _ => false,
    }
}

/// Where a text has a name that ends there, as `.x` does not in `.xs`.
pub fn ending<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).map(|(at, _)| at).filter(move |at| !text[at + name.len()..].starts_with(goes_on))
}

/// Where a text has a word, bounded by what is no letter, digit or underscore.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    ending(text, word).filter(move |at| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Whether a text has such a word.
pub fn has_word(text: &str, word: &str) -> bool {
    words(text, word).next().is_some()
}

/// How often a project says a name. What a comment says is called nowhere.
pub fn times_said(files: &Files, name: &str) -> usize {
    let lower = name.to_lowercase();
    files.saying(name).map(|file| words(&bare(files[file].whole()), &lower).count()).sum()
}

/// Whether a name has a part between underscores: `dp` of `dp_group`.
pub fn has_part(name: &str, part: &str) -> bool {
    name.to_lowercase().split(['_', '.']).any(|p| p == part)
}

/// Whether an expression is made with something whose name says that it is a rank: `chunks[rank]`, `seed + dist.get_rank()`.
pub fn names_rank(view: &View<'_>, expr: &Expr) -> bool {
    deep(view, expr).any(&mut |e| view.name_or_callee(e).is_some_and(|name| has_part(name, "rank")))
}

/// A view of another function of the same project.
pub fn other<'a>(view: &View<'a>, at: FuncRef) -> View<'a> {
    view.other(at)
}

/// The same; checks of one module share it.
pub fn shared<'a>(view: &View<'a>, at: FuncRef) -> Rc<View<'a>> {
    match view.beside() {
        Some(beside) => beside.view(at, || other(view, at)),
        None => Rc::new(other(view, at)),
    }
}

/// The functions of a module, its body and those of classes too.
pub fn functions(view: &View<'_>, module: ModuleId) -> Vec<FuncRef> {
    view.project.modules[module].ir.funcs.ids().map(|func| FuncRef { module, func }).collect()
}

/// The class of the project that an operand names: `F` of `F.apply(x)`.
pub fn class_named(view: &View<'_>, operand: &Operand) -> Option<ClassRef> {
    match view.project.path(&path(view, &view.expr(operand))?) {
        Resolved::Class(class) => Some(class),
        _ => None,
    }
}

/// An expression with variables that are bound once seen through, also those of enclosing functions and of the module.
pub fn deep(view: &View<'_>, expr: &Expr) -> Expr {
    let mut expr = expr.clone();
    for _ in 0..MAX_STEPS {
        let next = match &expr {
            Expr::Local(local) => match view.through(&Operand::Local(*local)) {
                Expr::Local(same) => captured(view, same),
                other => Some(other),
            },
            Expr::Path(path) => module_value(view, path),
            _ => None,
        };
        match next {
            Some(next) if next != expr => expr = next,
            _ => break,
        }
    }
    expr
}

/// What a variable of an enclosing function holds. Its locals are those of that function: only expressions without any are given.
fn captured(view: &View<'_>, local: LocalId) -> Option<Expr> {
    let (outer, _) = view.func.captures.iter().find(|(_, inner)| *inner == local)?;
    let parent = FuncRef { module: view.at.module, func: view.func.parent? };
    let around = shared(view, parent);
    let found = deep(&around, &Expr::Local(*outer));
    closed(&found).then_some(found)
}

/// What a name of a module's top level holds.
fn module_value(view: &View<'_>, path: &str) -> Option<Expr> {
    let (module, name) = path.rsplit_once('.')?;
    let module = view.project.module_named(module)?;
    let body = FuncRef { module, func: FuncId::from_index(0) };
    let around = shared(view, body);
    let local = around.func.locals().named(name)?;
    let found = around.through(&Operand::Local(local));
    (closed(&found) && !matches!(found, Expr::Unknown)).then_some(found)
}

/// Whether an expression has no variables of a function.
fn closed(expr: &Expr) -> bool {
    !expr.any(&mut |e| matches!(e, Expr::Local(_)))
}

/// The function that a value is: one of a module, or one that is defined here.
pub fn function(view: &View<'_>, operand: &Operand) -> Option<FuncRef> {
    if let Some((_, Rvalue::Closure { func, .. })) = view.source(operand) {
        return Some(FuncRef { module: view.at.module, func: *func });
    }
    match view.through(operand) {
        Expr::Path(path) => match view.project.path(&path) {
            Resolved::Func(at) => Some(at),
            _ => None,
        },
        Expr::Local(local) => match view.defs(local) {
            [one] => match view.steps[*one].stmt {
                Stmt::Def { func, .. } => Some(FuncRef { module: view.at.module, func: *func }),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The parameters and variables that a value may come from, through every definition; `self` is among them.
pub fn roots(view: &View<'_>, operand: &Operand) -> FxHashSet<LocalId> {
    roots_by(view, operand, |_| true)
}

/// The same through the definitions alone that are to be followed.
pub fn roots_by(view: &View<'_>, operand: &Operand, follows: impl Fn(usize) -> bool) -> FxHashSet<LocalId> {
    let mut seen = reached(view, operand, follows);
    seen.retain(|l| !view.is_temp(*l));
    seen
}

/// All locals that a value may come from through some definitions, temporaries too.
pub fn reached(view: &View<'_>, operand: &Operand, follows: impl Fn(usize) -> bool) -> FxHashSet<LocalId> {
    let mut seen = FxHashSet::default();
    let mut queue: Vec<LocalId> = local(operand).into_iter().collect();
    while let Some(local) = queue.pop() {
        if seen.insert(local) {
            for step in view.defs(local).iter().filter(|step| follows(**step)) {
                queue.extend(view.reads(*step).into_iter().filter_map(self::local));
            }
        }
    }
    seen
}

/// Whether any step of a function may communicate.
pub fn communicates(view: &View<'_>) -> bool {
    (0..view.steps.len()).any(|step| view.value(step).is_some_and(|value| view.may_communicate(value)))
}

/// Whether a value may come from another, through steps from the one on that made it.
pub fn comes_from(view: &View<'_>, operand: &Operand, from: LocalId, made: usize) -> bool {
    reached(view, operand, |def| def >= made).contains(&from)
}

/// Whether a name is that of infinity.
pub fn is_infinity(path: &str) -> bool {
    matches!(path, "math.inf" | "torch.inf" | "numpy.inf")
}

/// Whether a number, or the word that it is made from, is one that no norm of gradients reaches.
pub fn is_boundless(number: &Const) -> bool {
    match number {
        Const::Float(bits) => f64::from_bits(*bits) >= NO_BOUND,
        Const::Int(n) => *n as f64 >= NO_BOUND,
        Const::Str(word) => matches!(word.to_lowercase().trim_start_matches('+'), "inf" | "infinity"),
        Const::None | Const::Bool(_) | Const::Ellipsis => false,
    }
}

/// Whether an expression is infinity, or a number that no norm of gradients reaches.
pub fn is_without_bound(view: &View<'_>, most: &Expr) -> bool {
    match deep(view, most) {
        Expr::Path(path) => is_infinity(&path),
        Expr::Const(number) => is_boundless(&number),
        made => made.call_of("float").and_then(|args| args.first()).is_some_and(|(_, of)| match of {
            Expr::Const(number) => is_boundless(number),
            _ => false,
        }),
    }
}

pub fn local(operand: &Operand) -> Option<LocalId> {
    match operand {
        Operand::Local(local) => Some(*local),
        _ => None,
    }
}

/// The class whose method a function is, or is inside.
pub fn class_of(view: &View<'_>) -> Option<ClassId> {
    let funcs = &view.project.modules[view.at.module].ir.funcs;
    let mut at = Some(view.at.func);
    while let Some(func) = at {
        if funcs[func].class.is_some() {
            return funcs[func].class;
        }
        at = funcs[func].parent;
    }
    None
}

/// The class of autograd functions, by its head, that a function is in.
pub fn autograd_class(view: &View<'_>) -> Option<ClassRef> {
    let at = ClassRef { module: view.at.module, class: class_of(view)? };
    let text = view.text(view.spot(view.project.class(at).span));
    text.lines().next().filter(|head| head.contains("Function")).map(|_| at)
}

/// The variables that a backward takes what the forward saved apart into, all at once.
pub fn saved_names<'a>(backward: &View<'a>) -> Option<&'a [LocalId]> {
    backward.steps.iter().find_map(|step| match step.stmt {
        Stmt::Unpack { value, before, star: None, after } if after.is_empty() => match backward.source(value) {
            Some((_, Rvalue::Attr { name, .. })) if name == SAVED => Some(&**before),
            _ => None,
        },
        _ => None,
    })
}

/// The class of the project whose `apply` a call is.
pub fn applied(view: &View<'_>, value: &Rvalue) -> Option<ClassRef> {
    let class = match value {
        Rvalue::CallMethod { base, .. } => view.expr(base),
        Rvalue::Call { callee, .. } => match view.expr(callee) {
            Expr::Attr(base, _) => *base,
            Expr::Path(path) => Expr::Path(Name::from(path.strip_suffix(".apply").unwrap_or(&path))),
            _ => return None,
        },
        _ => return None,
    };
    match class.path().map(|path| view.project.path(path)) {
        Some(Resolved::Class(at)) => Some(at),
        _ => None,
    }
}

/// Whether a function is decorated so that nothing in it is recorded. Decorators stand before its span.
pub fn is_unrecorded(view: &View<'_>) -> bool {
    let text = view.file();
    let before = text.get(..view.func.span.start as usize).unwrap_or_default();
    let lines = before.lines().rev().skip_while(|line| line.trim().is_empty());
    lines
        .take_while(|line| line.trim_start().starts_with('@'))
        .any(|line| line.contains("no_grad") || line.contains("inference_mode"))
}

/// Whether a function is a property: its decorator stands on the line above.
pub fn is_property(view: &View<'_>, at: FuncRef) -> bool {
    let text = view.files[view.project.file(at.module)].whole();
    let before = text.get(..view.project.func(at).span.start as usize).unwrap_or_default().trim_end();
    let above = before.rsplit('\n').next().unwrap_or_default().trim();
    above.starts_with('@') && above.ends_with("property")
}

/// The variable whose parameters a step takes out of training: `model.requires_grad_(False)`.
pub fn frozen(view: &View<'_>, step: usize) -> Option<LocalId> {
    let Some(Rvalue::CallMethod { base, name, args }) = view.value(step) else { return None };
    let off = args.first().is_some_and(|arg| view.expr(&arg.value) == Expr::Const(Const::Bool(false)));
    local(base).filter(|_| name == "requires_grad_" && off)
}

/// The method of that name of the class that a function is in.
pub fn own_method(view: &View<'_>, name: &str) -> Option<FuncRef> {
    view.project.own_method(ClassRef { module: view.at.module, class: class_of(view)? }, name)
}

/// The methods of a class.
pub fn methods<'a>(view: &View<'a>, class: ClassId) -> Vec<Rc<View<'a>>> {
    let module = view.at.module;
    let class = &view.project.modules[module].ir.classes[class];
    class.methods.iter().map(|(_, func)| shared(view, FuncRef { module, func: *func })).collect()
}

/// Whether an operand is the first parameter of a method.
pub fn is_self(view: &View<'_>, operand: &Operand) -> bool {
    let own = view.func.class.is_some().then(|| view.func.params.first()).flatten();
    matches!((own, operand), (Some(p), Operand::Local(l)) if p.local == *l)
}

/// `name` of `self.name`, also in a function inside a method.
pub fn own_attribute<'e>(view: &View<'_>, expr: &'e Expr) -> Option<&'e crate::source::Name> {
    match expr {
        Expr::Attr(base, name) => match &**base {
            Expr::Local(local) if view.local_name(*local) == "self" => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Which methods of a class set each attribute. Most attributes are set by few, and the others need not be taken apart to know that.
fn setters(view: &View<'_>, class: ClassRef) -> Setters {
    let mut out = Setters::default();
    let mut set = Vec::new();
    for (_, func) in &view.project.modules[class.module].ir.classes[class.class].methods {
        set.clear();
        let method = view.project.func(FuncRef { module: class.module, func: *func });
        if !method.sets_attribute {
            continue;
        }
        attributes_set(method.body(), &mut set);
        set.sort_unstable();
        set.dedup();
        for name in &set {
            out.entry((*name).clone()).or_default().push(*func);
        }
    }
    out
}

/// What the methods of a class assign to an attribute: the method and the value.
pub fn assigned<'a>(view: &View<'a>, class: ClassId, attr: &str) -> Vec<Assigned<'a>> {
    let class = ClassRef { module: view.at.module, class };
    let Some(beside) = view.beside() else { return assigned_in(view, class, attr, &setters(view, class)) };
    let setters = beside.setters(class, || setters(view, class));
    beside.assigned(class, attr, || assigned_in(view, class, attr, &setters))
}

fn assigned_in<'a>(view: &View<'a>, class: ClassRef, attr: &str, setters: &Setters) -> Vec<Assigned<'a>> {
    let mut out = Vec::new();
    for func in setters.get(attr).into_iter().flatten() {
        let method = shared(view, FuncRef { module: class.module, func: *func });
        for (i, step) in method.steps.iter().enumerate() {
            match step.stmt {
                Stmt::SetAttr { base, name, value } if name == attr && is_self(&method, base) => {
                    out.push((method.clone(), i, value));
                }
                _ => {}
            }
        }
    }
    out
}

/// The qualified path of what an expression calls; the body of a module binds its functions and classes as variables.
pub fn path(view: &View<'_>, callee: &Expr) -> Option<crate::source::Name> {
    match callee {
        Expr::Path(path) => Some(path.clone()),
        Expr::Local(local) if view.func.kind == FuncKind::Module => Some(view.global(view.local_name(*local))),
        _ => None,
    }
}

/// The last name of what a step calls, in lowercase.
pub fn name_of_call(view: &View<'_>, step: usize) -> Option<String> {
    match view.value(step)? {
        Rvalue::Call { callee, .. } => Some(view.through(callee).last_name()?.to_lowercase()),
        Rvalue::CallMethod { name, .. } => Some(name.as_str().to_lowercase()),
        _ => None,
    }
}

/// The name that a call is written with: of a method, a function or a variable.
pub fn written_name(view: &View<'_>, value: &Rvalue) -> Option<Name> {
    match value {
        Rvalue::CallMethod { name, .. } => Some(name.clone()),
        Rvalue::Call { callee, .. } => match view.expr(callee) {
            Expr::Local(local) => Some(view.local_name(local).clone()),
            other => other.last_name().map(Name::from),
        },
        _ => None,
    }
}

/// The lines with decorators above a function.
pub fn decorators<'a>(view: &View<'a>, at: FuncRef) -> impl Iterator<Item = &'a str> {
    let text = view.files[view.project.file(at.module)].whole();
    let before = text.get(..view.project.func(at).span.start as usize).unwrap_or_default();
    let lines = before.lines().rev().map(str::trim).skip_while(|line| line.is_empty() || line.ends_with("def"));
    lines.take_while(|line| line.starts_with('@'))
}

/// The items of what is built, if each is written there by itself.
pub fn items(value: &Rvalue) -> Option<Vec<&Operand>> {
    let Rvalue::Build { items, .. } = value else { return None };
    items.iter().map(|item| if let Item::One(one) = item { Some(one) } else { None }).collect()
}

/// The default of a parameter of a function, where it is a constant.
pub fn default_of(view: &View<'_>, at: usize) -> Option<Const> {
    let parent = shared(view, FuncRef { module: view.at.module, func: view.func.parent? });
    parent.steps.iter().find_map(|step| match step.stmt {
        Stmt::Def { func, defaults, .. } if *func == view.at.func => {
            defaults.iter().find(|(i, _)| *i as usize == at).and_then(|(_, o)| match parent.expr(o) {
                Expr::Const(c) => Some(c),
                _ => None,
            })
        }
        _ => None,
    })
}

/// Whether a file of the project names a parameter in a string where it sums gradients.
pub fn summed_elsewhere(view: &View<'_>, name: &str) -> bool {
    let quoted = format!("\"{name}\"");
    let sums = |text: &str| text.contains(".grad") && has_any(text, &["all_reduce", "reduce_scatter"]);
    view.files.saying(&quoted).any(|file| sums(view.files[file].whole()))
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn comments_and_sentences_are_left_out() {
        assert_eq!(bare("x = f('Two words', 'one') # Said\ny"), "x = f('', 'one') \ny");
        assert_eq!(bare("\"\"\"Sums\nall\"\"\"\nG.div_(n)\n"), "\"\"\"\"\"\"\ng.div_(n)");
        assert_eq!(bare("''é = r'\\'a b'"), "''é = r''");
        assert_eq!(bare("'open\n# end"), "'open\n");
    }
}
