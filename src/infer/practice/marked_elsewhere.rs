//! Whether something outside a class may mark its parameters. In: the marks of the class, a parameter and a mark. Out: yes or no. Never: a no where
//! a class above or below may do it, or a walk over the parameters of any module. Next: `class_marks.rs`.

use super::class_marks::{ClassMarks, functions_in, is_no_tensor, marked, may_set, quotes, sets_unknown, text_of};
use super::expr::Expr;
use super::marking::{is_off, own_names};
use super::view::View;
use super::{Lint, near};
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, ModuleId};
use crate::source::{Name, Span};

/// Whether a class above or below, or a walk elsewhere in the project, may set a mark on a parameter of a class.
pub fn may_be(marks: &ClassMarks<'_>, lint: &Lint<'_>, path: &str, mark: &str) -> bool {
    let statics = &lint.settings.statics;
    let whole = |module| lint.files[lint.project.file(module)].whole();
    // What a base marks, it may mark in a walk that takes a helper from the file.
    let above = |c: ClassRef| {
        let text = text_of(lint, c);
        may_set(text, mark) || text.contains("parameters(") && may_set(whole(c.module), mark)
    };
    if statics.linearized(marks.class).iter().any(|c| *c != marks.class && above(*c)) {
        return true;
    }
    let given = format!("(self.{}", path.split('.').next().unwrap_or_default());
    let below = |c: ClassRef| {
        let text = text_of(lint, c);
        c != marks.class
            && (may_set(text, mark) || text.contains(&given) || text.contains("parameters("))
            && statics.linearized(c).contains(&marks.class)
    };
    let name = &lint.project.class(marks.class).name;
    let classes = |module| lint.project.modules[module].ir.classes.ids().map(move |class| ClassRef { module, class });
    lint.project.modules.ids().any(|module| {
        let says = |word: &str| lint.files.says(lint.project.file(module), word);
        says(name) && classes(module).any(below)
            || says(mark) && may_set(whole(module), mark) && walks(marks, lint, module, path, mark)
    })
}

/// Whether a function of a module, outside the class, walks over parameters of any modules and marks them, or marks that of one that it holds.
fn walks(marks: &ClassMarks<'_>, lint: &Lint<'_>, module: ModuleId, path: &str, mark: &str) -> bool {
    let span = lint.project.class(marks.class).span;
    let file = lint.project.file(module);
    let whole = lint.files[file].whole();
    let functions = functions_in(lint, module, Span::new(0, whole.len() as u32));
    let own = |f: Span| module == marks.class.module && span.start <= f.start && f.end <= span.end;
    functions.into_iter().any(|at| {
        let of = lint.project.func(at).span;
        let text = lint.files[file].slice(of);
        !own(of) && may_set(text, mark) && marks_any(marks, lint, &lint.view(at), (path, mark))
    })
}

fn marks_any(marks: &ClassMarks<'_>, lint: &Lint<'_>, view: &View<'_>, (path, mark): (&str, &str)) -> bool {
    let last = path.rsplit('.').next();
    let text = lint.files[lint.project.file(view.at.module)].slice(view.func.span);
    (0..view.steps.len()).any(|index| {
        let stmt = view.steps[index].stmt;
        if is_copy(view, stmt) {
            return false;
        }
        let Some((target, set, value)) = marked(view, index) else {
            return sets_unknown(view, stmt) && !view.steps[index].loops.is_empty() && quotes(text, mark);
        };
        // A copy of a mark gives none that is not there.
        let copies = value.is_some_and(|value| value.any(&mut |e| e.string().is_some_and(|s| s == mark)));
        if set != mark || copies || is_off(view, stmt) || is_no_tensor(view, &target) {
            return false;
        }
        // A variable for a parameter of something is that.
        let target = match near::deep(view, &target) {
            through @ Expr::Attr(..) => through,
            _ => target,
        };
        match &target {
            Expr::Local(local) if view.is_param(*local) => hands_walked(lint, &view.func.name, view.at.module),
            Expr::Local(local) => is_walked(view, *local),
            Expr::Attr(base, name) if Some(name.as_str()) == last => match &**base {
                Expr::Local(l) if view.local_name(*l) == "self" => false,
                Expr::Local(l) => view.is_param(*l) || is_walked(view, *l),
                _ => near::has_word(text_around(lint, view), &lint.project.class(marks.class).name),
            },
            Expr::Attr(..) => false,
            // `getattr(self, name)`
            other => !other.any(&mut |e| matches!(e, Expr::Local(l) if view.local_name(*l) == "self")),
        }
    })
}

/// The text of the class of a function, or of the function.
fn text_around<'a>(lint: &Lint<'a>, view: &View<'_>) -> &'a str {
    match near::class_of(view) {
        Some(class) => text_of(lint, ClassRef { module: view.at.module, class }),
        None => lint.files[lint.project.file(view.at.module)].slice(view.func.span),
    }
}

/// Whether a function of the files that name another one gives it what it walks over.
fn hands_walked(lint: &Lint<'_>, helper: &Name, home: ModuleId) -> bool {
    let says = |module: &ModuleId| *module == home || lint.files.says(lint.project.file(*module), helper);
    lint.project.modules.ids().filter(says).any(|module| {
        let whole = lint.files[lint.project.file(module)].whole();
        let called = |f: Span| {
            let text = &whole[f.start as usize..f.end as usize];
            text.match_indices(helper.as_str()).any(|(at, _)| text[at + helper.len()..].starts_with('('))
        };
        let mut all = functions_in(lint, module, Span::new(0, whole.len() as u32));
        all.any(|at| called(lint.project.func(at).span) && gives_walked(&lint.view(at), helper))
    })
}

/// Whether a function calls another one with what it walks over.
fn gives_walked(view: &View<'_>, helper: &Name) -> bool {
    (0..view.steps.len()).any(|index| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(index) else {
            return false;
        };
        let walked = |e: Expr| matches!(e, Expr::Local(l) if !view.is_param(l) && is_walked(view, l));
        near::written_name(view, value).is_some_and(|name| name == *helper)
            && args.iter().any(|arg| walked(view.expr(&arg.value)))
    })
}

/// Whether a variable goes through the parameters of something else than its own object, or through nobody knows what. What the object holds
/// beside its parameters is not looked into.
fn is_walked(view: &View<'_>, local: LocalId) -> bool {
    // In a function that a class is given, the object is any.
    let is_method = near::class_of(view).is_some();
    let of_itself = |e: &Expr| match e {
        Expr::Call { callee, .. } if is_method => {
            near::own_attribute(view, callee).is_some_and(|name| name == "parameters" || name == "named_parameters")
        }
        _ => false,
    };
    let is_self = |e: &Expr| matches!(e, Expr::Local(l) if view.local_name(*l) == "self");
    let other = |def: &usize| {
        let source = match view.steps[*def].stmt {
            Stmt::For { iter, .. } => view.through(iter),
            Stmt::Unpack { value, .. } => view.through(value),
            // What is taken out of something, but for `getattr(self, name)`.
            _ => {
                let value = view.bound(*def, local);
                let takes = |name: &str| ["getattr", "get_parameter", "get_submodule", "next"].contains(&name);
                let taken = match &value {
                    Expr::Call { callee, .. } => callee.last_name().is_some_and(takes),
                    other => matches!(other, Expr::Item(..) | Expr::Element(_) | Expr::Unknown),
                };
                return taken && !value.any(&mut |e| is_self(e)) && own_names(view, &Expr::Local(local)).is_none();
            }
        };
        !source.any(&mut |e| of_itself(e)) && own_names(view, &Expr::Local(local)).is_none()
    };
    view.defs(local).iter().any(other)
}

/// Whether a statement sets an attribute to what another object has under the same name.
fn is_copy(view: &View<'_>, stmt: &Stmt) -> bool {
    let Stmt::Assign { value: Rvalue::Call { callee: Operand::Global(callee), args }, .. } = stmt else { return false };
    let Some([_, name, value]) = args.get(..3).filter(|_| callee == "setattr") else { return false };
    let name = view.expr(&name.value);
    view.through(&value.value).call_of("getattr").is_some_and(|args| args.get(1).is_some_and(|(_, of)| *of == name))
}
