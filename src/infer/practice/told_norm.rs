//! Norms that are made in one of two ways, of which one is told that sequences are split. In: a class, and what sums gradients by a mark. Out: a plain norm of torch on the other
//! side of a test in the constructor, whose parameters nothing marks. Never: a test that asks about the split of sequences, a side that refuses it, or a norm that
//! anything else may mark. Source: NeMo pull request 7395; Korthikanti 2022. Next: `uneven.rs`, norms of one class of which one is marked.

use super::class_marks::{ClassMarks, exclude, may_set, quotes, text_of};
use super::expr::Expr;
use super::found::Practice;
use super::marked_elsewhere::may_be;
use super::reducers::Covered;
use super::unshared::Unshared;
use super::view::{Guard, View};
use super::{Class, Found, Lint, near, uneven};
use crate::ir::{ArgKind, Const, Stmt};
use crate::source::Name;

/// What the flag and the mark are called.
const SPLIT: &str = "sequence_parallel";
/// Marks that reducers ask for.
const MARKS: &[&str] = &["sequence_parallel", "sequence_parallel_enabled"];
/// Norms with a weight on every rank and no mark.
const PLAIN: &[&str] = &["torch.nn.LayerNorm", "torch.nn.RMSNorm"];
/// What has flags.
const HOLDERS: &[&str] = &["self", "config", "args"];
/// How many lines around a question say what else is taken.
const NEAR: usize = 6;
/// What goes through modules or parameters of an object.
const WALKS: &[&str] = &["parameters(", "modules(", "children(", ".apply(", "requires_grad", "__dict__", "_modules"];

/// A way to make an attribute.
struct Way<'a> {
    attribute: &'a Name,
    step: usize,
    made: Expr,
}

/// `self.norm = fast_norm(size, sequence_parallel)` on one side of a test, and `self.norm = LayerNorm(size)` on the other one
pub fn unmarked<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = text_of(lint, class.at);
    if !text.contains(SPLIT) || !near::has_any(text, &["LayerNorm(", "RMSNorm("]) {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let ways = ways(init);
    let Some((plain, told, flag)) = ways.iter().find_map(|way| pair(init, way, &ways)) else { return };
    let Some(mark) = MARKS.iter().find(|mark| is_asked(lint, mark)) else { return };
    if is_ruled_out(init, text, &init.steps[plain.step].guards)
        || hands_out(init, text, plain.attribute)
        || may_set(text, mark)
        || uneven::gathers(lint, class.at)
        || is_summed_otherwise(lint, plain.attribute)
        || is_seen_to_elsewhere(lint, text, plain.attribute)
        || is_tied_to_flag(lint, init, &init.steps[plain.step].guards)
        || may_be(&ClassMarks::none(class.at), lint, plain.attribute, mark)
    {
        return;
    }
    let place = |way: &Way<'_>| init.place(init.steps[way.step].id);
    let made = match &plain.made {
        Expr::Call { step, .. } => init.place(init.steps[*step].id),
        _ => place(plain),
    };
    let told = match &told.made {
        Expr::Call { step, .. } => init.place(init.steps[*step].id),
        _ => place(told),
    };
    let mistake = Unshared::NormNotTold { norm: plain.attribute.clone(), flag, mark: Name::from(*mark), told };
    out.push((made, Practice::Unshared(mistake)));
}

/// Whether code beside a class goes through modules to mark them by a function of its own, or puts another norm in the place of the attribute.
fn is_seen_to_elsewhere(lint: &Lint<'_>, class: &str, attribute: &str) -> bool {
    let marks = [format!("{SPLIT} = "), format!("\"{SPLIT}\", True")];
    let applied = |file| near::has_any(lint.files[file].whole(), &marks);
    let set = format!(".{attribute} = ");
    let puts = |file| {
        let text: &str = lint.files[file].whole();
        text.matches(&set).count() > if text.contains(class) { class.matches(&set).count() } else { 0 }
    };
    lint.files.saying(".apply(").any(applied) || lint.files.saying(&set).any(puts)
}

/// The attributes that a constructor sets to what a call gives.
fn ways<'a>(init: &View<'a>) -> Vec<Way<'a>> {
    let way = |step: usize| match init.steps[step].stmt {
        Stmt::SetAttr { base, name, value } if near::is_self(init, base) => {
            Some(Way { attribute: name, step, made: init.expr(value) })
        }
        _ => None,
    };
    (0..init.steps.len()).filter_map(way).collect()
}

/// A plain norm, and the way on the other side of a test by which the same attribute is told the flag, which is called so.
fn pair<'w, 'a>(init: &View<'a>, plain: &'w Way<'a>, ways: &'w [Way<'a>]) -> Option<(&'w Way<'a>, &'w Way<'a>, Name)> {
    if !is_plain(&plain.made) {
        return None;
    }
    ways.iter().filter(|way| way.attribute == plain.attribute && way.step != plain.step).find_map(|way| {
        let (a, b) = (&init.steps[plain.step].guards, &init.steps[way.step].guards);
        let flag = flag_given(init, &way.made)?;
        (exclude((init, a), (init, b)) && !asks(init, a) && !asks(init, b)).then_some((plain, way, flag))
    })
}

/// Whether a norm of torch is made with a weight.
fn is_plain(made: &Expr) -> bool {
    let Expr::Call { callee, args, .. } = made else { return false };
    let affine = |kind: &ArgKind| matches!(kind, ArgKind::Keyword(name) if name == "elementwise_affine");
    callee.path().is_some_and(|path| PLAIN.contains(&path.as_str()))
        && !args.iter().any(|(kind, _)| affine(kind) || matches!(kind, ArgKind::Star | ArgKind::DoubleStar))
        && args.len() < 3
}

/// The flag that a call is given by its name.
fn flag_given(init: &View<'_>, made: &Expr) -> Option<Name> {
    let Expr::Call { callee, args, .. } = made else { return None };
    if !callee.last_name().or(init.name_of(callee)).is_some_and(|name| name.to_lowercase().contains("norm")) {
        return None;
    }
    args.iter().find_map(|(kind, arg)| {
        let off = matches!(arg, Expr::Const(Const::Bool(false) | Const::None));
        let named = match kind {
            ArgKind::Keyword(name) if name.contains(SPLIT) => Some(name.clone()),
            ArgKind::Keyword(_) | ArgKind::Positional => {
                init.name_of(arg).filter(|n| n.contains(SPLIT)).map(Name::from)
            }
            ArgKind::Star | ArgKind::DoubleStar => None,
        };
        named.filter(|_| !off)
    })
}

/// Whether conditions ask about sequences, also through what a test was computed from.
fn asks(init: &View<'_>, guards: &[Guard<'_>]) -> bool {
    let says = |text: &str| near::has_any(&text.to_lowercase(), &["sequence", "seq_", "_sp", "sp_"]);
    let of_attribute = |name: &Name| {
        init.steps.iter().any(|s| match s.stmt {
            Stmt::SetAttr { name: set, value, .. } if set == name => reads(init, value, &says),
            _ => false,
        })
    };
    guards.iter().any(|g| {
        let mut found = says(init.text(init.part(g.at, 0))) || reads(init, g.test, &says);
        init.expr(g.test).any(&mut |e| {
            found |= near::own_attribute(init, e).is_some_and(of_attribute);
            found
        });
        found
    })
}

/// Whether a value is made from something that a text names.
fn reads(init: &View<'_>, value: &crate::ir::Operand, says: &dyn Fn(&str) -> bool) -> bool {
    near::reached(init, value, |_| true).into_iter().any(|local| {
        let made = |def: &usize| says(init.text(init.place(init.steps[*def].id)));
        says(init.local_name(local)) || !init.is_param(local) && init.defs(local).iter().any(made)
    })
}

/// Whether a class refuses split sequences, sets the flag, or asks for it where the plain norm is made.
fn is_ruled_out(init: &View<'_>, text: &str, guards: &[Guard<'_>]) -> bool {
    let Some(side) = guards.last() else { return true };
    let sets = |line: &str| {
        let line = line.trim_start();
        let value = near::ending(line, SPLIT).map(|at| line[at + SPLIT.len()..].trim_start()).next();
        value.is_some_and(|v| v.starts_with("= False") || v.starts_with("= not ")) && !line.contains('(')
    };
    let refuses = near::refusals(text).any(|line| line.contains("sequence")) || text.lines().any(sets);
    let tests = init.steps.iter().any(|step| {
        let within = step.guards.iter().any(|g| g.at == side.at && g.holds == side.holds);
        let asked = matches!(step.stmt, Stmt::If { .. } | Stmt::Assert { .. } | Stmt::Raise);
        within && (asked && init.text(init.part(step.id, 0)).contains("sequence") || matches!(step.stmt, Stmt::Raise))
    });
    refuses || tests
}

/// Whether a norm, or the object that has it, goes anywhere where it may be marked, or is never called.
fn hands_out(init: &View<'_>, text: &str, attribute: &Name) -> bool {
    let own = format!("self.{attribute}");
    let built = near::bare(init.text(init.spot(init.func.span)));
    let sets = init.steps.iter().filter(|s| matches!(s.stmt, Stmt::SetAttr { name, .. } if name == attribute)).count();
    let body = near::bare(text);
    let lower = own.to_lowercase();
    let said = near::ending(&built, &lower).count();
    let otherwise = near::ending(&body, &lower).filter(|at| {
        let rest = body[at + lower.len()..].trim_start();
        !rest.starts_with('(') && !rest.starts_with("= ")
    });
    let whole = |line: &str| {
        let line = line.trim_start();
        let head = line.starts_with("def ") || line.contains("super(");
        !head && near::has_any(line, &["(self)", "(self,", ", self)", ", self,", "=self)", "=self,"])
    };
    said != sets
        || otherwise.count() > 0
        || !body.contains(&format!("{lower}("))
        || body.lines().any(whole)
        || near::has_any(&body, WALKS)
}

/// Whether a file of the project sums gradients of the parameters that it asks for a mark, and none by the names of norms.
fn is_asked(lint: &Lint<'_>, mark: &str) -> bool {
    let by_name = |line: &str| {
        let strings = line.split(['"', '\'']).skip(1).step_by(2);
        strings.into_iter().any(|text| near::has_any(&text.to_lowercase(), &["norm", "ln_", "_ln"]))
    };
    lint.files.saying(mark).any(|file| {
        let text = lint.files[file].whole();
        if !near::has_any(text, &["all_reduce(", "allreduce("]) || !text.contains("grad") {
            return false;
        }
        let lines: Vec<&str> = text.lines().collect();
        let asks = |line: &str| line.contains("getattr(") && !line.contains("setattr(") && quotes(line, mark);
        lines.iter().enumerate().any(|(n, line)| {
            let around = &lines[n.saturating_sub(NEAR)..(n + NEAR).min(lines.len())];
            asks(line) && !around.iter().any(|line| by_name(line))
        })
    })
}

/// Whether something sums the gradients of a norm without asking for the mark: by its name, or those of all whole parameters.
fn is_summed_otherwise(lint: &Lint<'_>, norm: &Name) -> bool {
    let path = format!("{norm}.weight");
    lint.reducers().all.iter().any(|reducer| {
        let named = reducer.axes.iter().flatten().chain(&reducer.group);
        let is = |parts: &[&str]| named.clone().any(|name| parts.iter().any(|part| near::has_part(name, part)));
        match reducer.when.is_empty() {
            true => is(&["tp", "tensor", "model", "mp", "sp", "sequence"]),
            false => !is(&["dp", "data"]) && reducer.covers(&path, &|_| true) != Covered::No,
        }
    })
}

/// Whether a file refuses split sequences on one side of the test, or sets what is tested where they are split.
fn is_tied_to_flag(lint: &Lint<'_>, init: &View<'_>, guards: &[Guard<'_>]) -> bool {
    let mut tested: Vec<Name> = Vec::new();
    for guard in guards {
        init.expr(guard.test).any(&mut |e| {
            let name = init.name_of(e).map(|name| Name::from(name.trim_start_matches('_')));
            tested.extend(name.filter(|name| name.len() > 3 && !HOLDERS.contains(&name.as_str())));
            false
        });
    }
    tested.iter().any(|name| {
        let sets = |line: &str| {
            near::ending(line, name).any(|at| {
                let value = line[at + name.len()..].trim_start();
                line[..at].ends_with(['.', '_']) && value.starts_with('=') && !value.starts_with("==")
            })
        };
        lint.files.saying(name).any(|file| {
            let lines: Vec<&str> = lint.files[file].whole().lines().map(str::trim_start).collect();
            // `self.sp = sequence_parallel and fast`, and callers that give both.
            let together = |line: &&str| {
                let given = line.contains(&format!("{name}=")) && line.contains(&format!("{SPLIT}="));
                let both = line.contains(SPLIT) && line.contains(name.as_str()) && line.contains(" and ");
                !line.starts_with("def ") && (given || both)
            };
            if lines.iter().any(together) {
                return true;
            }
            lines.iter().enumerate().any(|(n, line)| {
                let around = &lines[n.saturating_sub(3)..(n + 4).min(lines.len())];
                let decides = line.starts_with("assert") || line.starts_with("if ") || sets(line);
                line.contains(name.as_str())
                    && decides
                    && around.iter().any(|line| {
                        line.contains(SPLIT)
                            && (line.starts_with("if ")
                                || line.starts_with("assert")
                                || line.starts_with("and ")
                                || line.starts_with("or "))
                    })
            })
        })
    })
}
