//! Rows of a split table that stay zero where another rank has them. In: a method `forward`. Out: a lookup of which the rows outside of this rank's range are set
//! to zero, and that is returned as it is: on every way, or on one side of a test whose other side sums it. Never: a function whose class or callers
//! speak of a sum that is left to them, and values that anything but a change of form reads. Source: Megatron-LM, `VocabParallelEmbedding.forward`. Next: `masked_rows.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::{Guard, View};
use crate::ir::{BinOp, ClassId, CmpOp, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::{Idx, Name, Span};
use rustc_hash::FxHashSet;

/// Methods that give the same values in another form.
const FORMS: &[&str] = &[
    "transpose",
    "contiguous",
    "view",
    "reshape",
    "permute",
    "to",
    "type_as",
    "float",
    "half",
    "bfloat16",
    "squeeze",
    "unsqueeze",
    "clone",
];

/// What stands in a forward that looks up rows behind a mask: the lookup, and the comparison with the first row of a rank.
pub const SHOWN: &[&[&str]] = &[&["def forward("], &["embedding(", ".weight["], &["<"], FIRST];
/// Parts of names of the first row that a rank has.
const FIRST: &[&str] = &["start", "first", "min", "begin", "low"];
/// What reads a tensor's form alone.
const ASKED: &[&str] = &["shape", "size", "dim", "dtype", "device", "ndim", "numel", "type"];

/// Words of a class that leaves the sum to its callers.
const LEFT_TO_OTHERS: &[&str] = &["partial", "caller", "unreduced", "not reduced", "later", "afterwards"];

/// `rows = F.embedding(ids, self.weight)`, `rows[outside] = 0`, `return rows`
pub fn returned(view: &View<'_>, out: &mut Found) {
    if view.func.name != "forward" || near::autograd_class(view).is_some() {
        return;
    }
    let masks: Vec<LocalId> =
        (0..view.func.locals().len()).map(LocalId::from_index).filter(|l| is_mask(view, *l)).collect();
    let Some(lookup) = (0..view.steps.len()).find(|step| !masks.is_empty() && is_lookup(view, *step)) else { return };
    let rows = Rows::followed(view, lookup, &masks);
    let (Some(zeroed), Some(name)) = (rows.zeroed, rows.name.clone()) else { return };
    let Some((at, other)) = rows.unsummed(view) else { return };
    if is_left_to_others(view, other.is_some()) {
        return;
    }
    let place = |step: usize| view.place(view.steps[step].id);
    let mistake =
        Unshared::RowsNotSummed { rows: name, lookup: place(lookup), zeroed: place(zeroed), other: other.map(place) };
    out.push((place(at), Practice::Unshared(mistake)));
}

/// What becomes of the rows of a lookup.
struct Rows {
    /// Variables that hold them, be it in another form.
    held: FxHashSet<LocalId>,
    /// The first variable of the program among these.
    name: Option<Name>,
    zeroed: Option<usize>,
    /// Steps that give the rows to something else.
    given: Vec<usize>,
    returned: Vec<usize>,
}

impl Rows {
    fn followed(view: &View<'_>, lookup: usize, masks: &[LocalId]) -> Rows {
        let mut rows = Rows {
            held: view.binds(lookup).into_iter().collect(),
            name: None,
            zeroed: None,
            given: Vec::new(),
            returned: Vec::new(),
        };
        for step in lookup..view.steps.len() {
            if step > lookup {
                rows.step(view, step, masks);
            }
            let named = view.binds(step).into_iter().find(|l| rows.held.contains(l) && !view.is_temp(*l));
            if let (None, Some(local)) = (&rows.name, named) {
                rows.name = Some(view.local_name(local).clone());
            }
        }
        rows
    }

    fn step(&mut self, view: &View<'_>, step: usize, masks: &[LocalId]) {
        let held = |o: &Operand| near::local(o).is_some_and(|l| self.held.contains(&l));
        let masked = |o: &Operand| near::roots(view, o).iter().any(|l| masks.contains(l));
        if !view.reads(step).into_iter().any(held) {
            return;
        }
        match view.steps[step].stmt {
            Stmt::SetItem { base, index, value } if held(base) && masked(index) && is_zero(value) => {
                self.zeroed.get_or_insert(step);
            }
            Stmt::Return { .. } => self.returned.push(step),
            Stmt::Assign { dst, value } => match value {
                Rvalue::CallMethod { name, args, .. } if name.starts_with("masked_fill") => {
                    if args.len() == 2 && masked(&args[0].value) && is_zero(&args[1].value) {
                        self.zeroed.get_or_insert(step);
                        self.held.insert(*dst);
                    } else {
                        self.given.push(step);
                    }
                }
                Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right } => {
                    if masked(left) || masked(right) {
                        self.zeroed.get_or_insert(step);
                    }
                    self.held.insert(*dst);
                }
                Rvalue::CallMethod { name, .. } if FORMS.contains(&name.as_str()) => {
                    self.held.insert(*dst);
                }
                Rvalue::Use(_) => {
                    self.held.insert(*dst);
                }
                Rvalue::Attr { name, .. } | Rvalue::CallMethod { name, .. } if ASKED.contains(&name.as_str()) => {}
                _ => self.given.push(step),
            },
            _ => self.given.push(step),
        }
    }

    /// Where the rows leave the function as they are, and the step on the other side of a test that sums them.
    fn unsummed(&self, view: &View<'_>) -> Option<(usize, Option<usize>)> {
        let last = *self.returned.last()?;
        let [given] = self.given[..] else {
            return (self.given.is_empty() && !near::communicates(view)).then_some((last, None));
        };
        // On one side they are bound to another name as they are, on the other one something communicates.
        let sum = view.value(given).filter(|value| view.may_communicate(value))?;
        let Stmt::Assign { dst, .. } = view.steps[given].stmt else { return None };
        let Rvalue::Call { .. } = sum else { return None };
        let results: Vec<LocalId> = view
            .readers(*dst)
            .iter()
            .flat_map(|reader| view.binds(*reader))
            .chain([*dst])
            .filter(|l| !view.is_temp(*l))
            .collect();
        let plain = (0..view.steps.len()).find(|step| {
            let own = view.binds(*step).into_iter().any(|l| results.contains(&l) && self.held.contains(&l));
            own && *step != given && view.steps[*step].guards.iter().any(|g| is_other_side(view, g, given))
        })?;
        Some((plain, Some(given)))
    }
}

/// Whether a step runs on the other side of a test, one that speaks of a sum where it holds.
fn is_other_side(view: &View<'_>, guard: &Guard<'_>, step: usize) -> bool {
    let other = view.steps[step].guards.iter().any(|g| g.at == guard.at && g.holds != guard.holds);
    let test = view.test_of(guard).map(|at| view.text(view.place(view.steps[at].id)).to_lowercase());
    let head = |text: String| {
        text.lines().next().is_some_and(|head| ["scatter", "sequence"].iter().any(|word| head.contains(word)))
    };
    other && guard.holds && test.is_some_and(head)
}

/// A table's rows by position.
fn is_lookup(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(Rvalue::Item { base, .. }) => view.through(base).last_name() == Some("weight"),
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            view.callee(value).is_some_and(|path| path == "torch.nn.functional.embedding" || path == "torch.embedding")
        }
        _ => false,
    }
}

fn is_zero(value: &Operand) -> bool {
    matches!(value, Operand::Const(number) if number.is_number(0.0))
}

/// Whether a variable tells which positions are outside, or inside, of the rows of this rank.
fn is_mask(view: &View<'_>, local: LocalId) -> bool {
    let [made] = view.defs(local) else { return false };
    if view.is_temp(local) {
        return false;
    }
    let mut sides: Vec<(bool, Expr, Expr)> = Vec::new();
    near::deep(view, &view.bound(*made, local)).any(&mut |e| {
        if let Expr::Compare(op, of, bound) = e
            && matches!(op, CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge)
        {
            sides.push((matches!(op, CmpOp::Lt | CmpOp::Le), (**of).clone(), (**bound).clone()));
        }
        false
    });
    let [(one, of, first), (other, again, last)] = &sides[..] else { return false };
    let starts = |e: &Expr| {
        let name = view.name_of(e).or(e.last_name()).map(str::to_lowercase);
        name.is_some_and(|name| FIRST.iter().any(|w| near::has_part(&name, w)))
    };
    one != other
        && of == again
        && first != last
        && (starts(first) || starts(last))
        && (of_rank(view, first) || of_rank(view, last))
}

/// Whether a bound is computed from the rank, by the constructor of the class if it is kept there.
fn of_rank(view: &View<'_>, bound: &Expr) -> bool {
    let Some((name, class)) = near::own_attribute(view, bound).zip(near::class_of(view)) else {
        return near::names_rank(view, bound);
    };
    near::assigned(view, class, name).iter().any(|(method, _, value)| {
        let reached = near::reached(method, value, |_| true);
        let made = |step: usize| method.binds(step).into_iter().any(|l| reached.contains(&l));
        let operands = |step: usize| method.reads(step).into_iter().any(|o| near::names_rank(method, &method.expr(o)));
        near::names_rank(method, &method.expr(value))
            || (0..method.steps.len()).any(|step| made(step) && operands(step))
    })
}

/// Whether the class, or somebody that knows it, may see to the sum. `one_sided`: the other side of a test shows what this one lacks.
fn is_left_to_others(view: &View<'_>, one_sided: bool) -> bool {
    let Some(class) = near::class_of(view) else { return true };
    let class = ClassRef { module: view.at.module, class };
    let (name, span) = (&view.project.class(class).name, view.project.class(class).span);
    let text = view.text(view.spot(span)).to_lowercase();
    near::has_any(&text, LEFT_TO_OTHERS)
        || match one_sided {
            true => is_summed_by_callers(view, name, span),
            false => !is_kept_plainly(view, name, span),
        }
}

/// Whether a method outside of a class that calls some table calls a sum as well, in a file that knows the class.
fn is_summed_by_callers(view: &View<'_>, name: &str, span: Span) -> bool {
    view.project.modules.ids().any(|module| {
        let file = view.files[view.project.file(module)].whole();
        near::has_word(file, name)
            && near::functions(view, module).into_iter().any(|at| {
                let func = view.project.func(at);
                let own = module == view.at.module && span.start <= func.span.start && func.span.end <= span.end;
                let code = || view.files[view.project.file(module)].slice(func.span).to_lowercase();
                !own && func.class.is_some() && sums_a_lookup(&code())
            })
    })
}

/// Whether a text calls a table, and something that its name says to sum over ranks.
fn sums_a_lookup(code: &str) -> bool {
    let (mut looks_up, mut sums) = (false, false);
    for (at, _) in code.match_indices('(') {
        let name = code[..at].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        sums |= name.contains("reduce") || name.contains("psum");
        looks_up |= name.contains("emb")
            && ["emb", "embed", "embedding", "embeddings", "tokens"].iter().any(|end| name.ends_with(end));
    }
    looks_up && sums
}

/// Whether all that know a class keep one of it and call that as it is, in methods that communicate nothing.
fn is_kept_plainly(view: &View<'_>, name: &str, span: Span) -> bool {
    let mut kept = false;
    for module in view.project.modules.ids() {
        let file = view.files[view.project.file(module)].whole();
        if !near::has_word(file, name) {
            continue;
        }
        if near::has_any(file, HOOKS) {
            return false;
        }
        for at in near::words(file, name) {
            let own = module == view.at.module && (span.start as usize..span.end as usize).contains(&at);
            if own || is_no_use(file, at) {
                continue;
            }
            let plain = kept_as(file, at).filter(|attribute| is_plainly_called(view, module, at, attribute));
            if plain.is_none() || module != view.at.module {
                return false;
            }
            kept = true;
        }
    }
    kept
}

/// What may see to a sum from outside.
const HOOKS: &[&str] = &["_hook(", "ParallelStyle", "parallelize_module", "setattr("];

/// Whether a name stands in an import, a list of exports, a text or a comment.
fn is_no_use(file: &str, at: usize) -> bool {
    let before = file[..at].rsplit('\n').next().unwrap_or_default();
    let quoted = before.trim_end().ends_with(['"', '\'', '`']);
    before.trim_start().starts_with("from ") || before.contains("import ") || before.contains('#') || quoted
}

/// The attribute that an object is kept as where it is made: `self.words = VocabEmbedding(`.
fn kept_as(file: &str, at: usize) -> Option<&str> {
    let before = file[..at].rsplit('\n').next()?.trim();
    let attribute = before.strip_prefix("self.")?.strip_suffix('=')?.trim_end();
    attribute.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(attribute)
}

/// Whether the class around a place does nothing with an attribute but call it, in methods that communicate nothing and give what it gives to
/// nobody that may.
fn is_plainly_called(view: &View<'_>, module: ModuleId, at: usize, attribute: &str) -> bool {
    let file = view.files[view.project.file(module)].whole();
    let around = |f: &FuncRef| {
        let func = view.project.func(*f);
        func.class.is_some() && (func.span.start as usize..func.span.end as usize).contains(&at)
    };
    let Some(init) = near::functions(view, module).into_iter().find(around) else { return false };
    let Some(holder) = view.project.func(init).class else { return false };
    let name = |c: char| c.is_alphanumeric() || c == '_';
    let uses = file.split(&format!(".{attribute}")).skip(1).filter(|rest| !rest.starts_with(name)).count();
    let mut seen = 1;
    for method in near::methods(&near::shared(view, init), holder) {
        let code = method.code();
        let calls = code.matches(&format!("self.{}(", attribute.to_lowercase())).count();
        if calls > 0 && (near::communicates(&method) || near::has_any(code, &[".apply(", "reduce", "psum"])) {
            return false;
        }
        if calls > 0 && is_handed_on(&method, attribute) {
            return false;
        }
        seen += calls;
    }
    seen > 1 && seen == uses
}

/// Whether a method gives what an attribute gives to anything but modules of torch that its object keeps: whoever gets it may sum it.
fn is_handed_on(view: &View<'_>, attribute: &str) -> bool {
    let Some(class) = near::class_of(view) else { return true };
    let mut held: FxHashSet<LocalId> = FxHashSet::default();
    for step in 0..view.steps.len() {
        let reads = view.reads(step).into_iter().any(|o| near::local(o).is_some_and(|l| held.contains(&l)));
        match view.value(step) {
            Some(Rvalue::CallMethod { base, name, .. }) if name == attribute && near::is_self(view, base) => {
                held.extend(view.binds(step));
            }
            Some(Rvalue::Use(_)) if reads => held.extend(view.binds(step)),
            Some(Rvalue::CallMethod { base, name, .. }) if reads => {
                if near::is_self(view, base) && is_of_torch(view, class, name) {
                    continue;
                }
                if !FORMS.contains(&name.as_str()) {
                    return true;
                }
                held.extend(view.binds(step));
            }
            _ if reads => return true,
            _ => {}
        }
    }
    held.is_empty()
}

/// Whether an attribute is a module of torch that bends what it is given.
fn is_of_torch(view: &View<'_>, class: ClassId, attribute: &str) -> bool {
    let bends = |e: &Expr| match e {
        Expr::Call { callee, .. } => callee.path().is_some_and(|path| {
            path.starts_with("torch.nn.") && !near::has_any(path, &["Linear", "Dropout", "Identity", "DataParallel"])
        }),
        _ => false,
    };
    let set = near::assigned(view, class, attribute);
    !set.is_empty() && set.iter().all(|(method, _, value)| bends(&method.expr(value)))
}
