//! What other code does to gradients that are handed to it: subclasses by what they override, callbacks, hooks of activations, autograd
//! functions with a factor in their backward. In: a call. Out: whether anything is known of gradients afterwards.
//! Never: the factor itself. Next: `methods.rs`, `calls.rs`.

use super::Run;
use super::calls::Args;
use super::eval::replace;
use super::value::{State, Val};
use crate::infer::practice::expr::Expr;
use crate::infer::practice::near;
use crate::ir::{BinOp, Const, Rvalue, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::{Name, Place};
use crate::types::Scale;

/// Words of functions that change gradients.
const CHANGES: &[&str] = &[".grad", "main_grad", "_foreach"];

/// Words of functions over the parts of a module that change what becomes of their gradients.
const HOOKS: &[&str] = &["register_hook", ".grad", "divide_factor", "reduction", "_sync"];

/// Words of hooks that give another gradient than they are given.
const FACTORS: &[&str] = &[" * ", " / ", "mul(", "div("];

/// Hooks of torch that take the mean over the ranks, as a wrapper does by itself.
const MEANS: &[&str] = &[".allreduce_hook", ".fp16_compress_hook", ".bf16_compress_hook"];

/// Words of a hook that does more than to add up.
const ARITHMETIC: &[&str] = &["/", "*", "div", "mul", "avg", "mean", "size", "scale", "group", "quant", "premul"];

/// Words of decorators that change what a function gives by the number of ranks.
const SIZES: &[&str] = &["world_size", ".size("];

impl<'a> Run<'a> {
    /// Whether a method of a class says nothing itself, and a subclass says it: what an object does that is known by the class alone is
    /// not known then.
    pub fn is_left_to_subclasses(&mut self, class: ClassRef, name: &Name) -> bool {
        let Some(own) = self.method(class, name) else { return false };
        let overridden = self.project.methods_named(name).iter().any(|(other, _)| {
            *other != class && self.settings.statics.linearized(*other).iter().skip(1).any(|base| *base == class)
        });
        overridden && self.says_nothing(own)
    }

    /// The same of an object of which nobody has said that it is of this class and of no other.
    pub fn is_overridden(&mut self, object: usize, name: &Name, state: &State) -> bool {
        let own = self.project.func(self.root).class.map(|class| ClassRef { module: self.root.module, class });
        let class = state.objects.get(object).and_then(|o| o.class);
        class.is_some_and(|class| own == Some(class) && self.is_left_to_subclasses(class, name))
    }

    /// What a method gives of which the class itself says a constant: a number that is not known, or anything.
    pub fn said_by_subclass(&mut self, own: FuncRef, name: &Name, state: &mut State) -> Val {
        let view = self.view(own);
        let number = view.steps.iter().any(|step| match step.stmt {
            Stmt::Return { value } => matches!(view.through(value), Expr::Const(Const::Int(_) | Const::Float(_))),
            _ => false,
        });
        if number { state.num(Scale::Unknown) } else { Val::named(&format!("self.{name}")) }
    }

    /// Whether a function does no more than return a constant.
    fn says_nothing(&mut self, at: FuncRef) -> bool {
        let view = self.view(at);
        view.steps.iter().all(|step| match step.stmt {
            Stmt::Return { value } => matches!(view.through(value), Expr::Const(_)),
            Stmt::Assign { value: Rvalue::Use(_), .. } => true,
            _ => false,
        })
    }

    /// A method of a name that no class is known for is given objects: what one of the project changes in their gradients is lost.
    pub fn hand_to_methods(&mut self, name: &str, args: &Args, state: &mut State) {
        if !args.all().any(|v| matches!(v, Val::Object(_))) {
            return;
        }
        let methods = self.project.methods_named(&Name::from(name));
        if methods.iter().any(|(class, func)| self.says(FuncRef { module: class.module, func: *func }, CHANGES)) {
            self.lose_all(state);
        }
    }

    /// A hook of an activation or of a module may scale what flows back through it, and a function that is applied to every part of a
    /// module may change how that is wrapped.
    pub fn hand_function(&self, receiver: &Val, name: &str, args: &Args, state: &mut State) {
        let of_model = matches!(receiver, Val::Named(_) | Val::Tensor(_) | Val::Module(_));
        let words = match name {
            "register_hook" => &[""],
            "apply" | "register_forward_hook" | "register_forward_pre_hook" => HOOKS,
            "register_full_backward_hook" | "register_full_backward_pre_hook" | "register_backward_hook" => FACTORS,
            _ => return,
        };
        let given = args.plain.first();
        if of_model && matches!(given, Some(Val::Func(at) | Val::Method(_, at)) if self.says(*at, words)) {
            self.lose_all(state);
        }
    }

    /// An autograd function of the project that multiplies or divides what flows back by something that it keeps or asks for.
    pub fn scales_backward(&mut self, class: ClassRef) -> bool {
        let Some(at) = self.method(class, "backward") else { return false };
        let view = self.view(at);
        let context = view.func.params.first().map(|p| p.local);
        let kept = |e: &Expr| match near::deep(&view, e) {
            Expr::Attr(base, _) => matches!(*base, Expr::Local(l) if Some(l) == context),
            Expr::Call { callee, .. } => near::path(&view, &callee).is_some_and(|p| p.ends_with("get_world_size")),
            _ => false,
        };
        (0..view.steps.len()).any(|step| match view.value(step) {
            Some(Rvalue::Binary { op: BinOp::Mul | BinOp::Div, left, right }) => {
                kept(&view.expr(left)) || kept(&view.expr(right))
            }
            _ => false,
        })
    }

    /// Whether the forward of an autograd function is of other ranks' values as well.
    pub fn communicates(&mut self, class: ClassRef) -> bool {
        let Some(at) = self.method(class, "forward") else { return false };
        !self.view(at).collectives().is_empty()
    }

    /// Whether a module has an autograd function that sums what its ranks have, and leaves each rank its own part of the gradient: a loss
    /// behind it is one of all those ranks.
    pub fn sums_parts(&mut self, module: ModuleId) -> bool {
        let is_function = |c: &ClassRef| {
            let mut bases = self.settings.statics.external_bases(*c);
            bases.any(|base| self.rules.autograd_base(base))
        };
        let classes = self.project.modules[module].ir.classes.ids().map(|class| ClassRef { module, class });
        let functions: Vec<ClassRef> = classes.filter(is_function).collect();
        functions.into_iter().any(|class| {
            let (Some(forward), Some(backward)) = (self.method(class, "forward"), self.method(class, "backward"))
            else {
                return false;
            };
            let sums = self.view(forward).collectives().iter().any(|(_, call)| call.rule.op == "all_reduce");
            sums && self.view(backward).collectives().is_empty()
        })
    }

    /// What a wrapper does with gradients, where a function is given for it: one of torch takes the mean as well, one that sums and has
    /// no other arithmetic takes the sum. Of any other nothing is known.
    pub fn comm_hook(&mut self, module: usize, args: &Args, place: Place, state: &mut State) {
        let sums = match args.get(1, "hook") {
            Some(Val::Path(path)) if MEANS.iter().any(|hook| path.ends_with(hook)) => return,
            Some(Val::Func(at)) => {
                let view = self.view(*at);
                let code = view.code();
                let plain = !ARITHMETIC.iter().any(|w| code.contains(w));
                code.contains("all_reduce(") && code.contains(".buffer()") && plain
            }
            _ => false,
        };
        match state.modules[module].wraps.last_mut().filter(|_| sums) {
            Some((_, divisor, at)) => (*divisor, *at) = (Scale::one(), place),
            None => state.lose(&Val::Module(module)),
        }
    }

    /// What collectives of objects, and those with a root, leave.
    pub fn objects(&self, id: StmtId, does: &str, args: &Args, state: &mut State) {
        match does {
            "object-collective" => self.objects_gathered(id, args, state),
            "rooted-collective" => self.sent(id, args, state),
            _ => {}
        }
    }

    /// Objects of all ranks in a list: each entry is what one rank has.
    fn objects_gathered(&self, id: StmtId, args: &Args, state: &mut State) {
        let axes = match args.get(2, "group") {
            None => Some(state.everyone()),
            Some(group) => state.axes(group),
        };
        if let (Some(Val::List(list)), Some(one @ Val::Num(_)), Some(axes)) =
            (args.get(0, "object_list"), args.get(1, "obj"), axes)
            && let Some(list) = state.lists.get_mut(*list)
        {
            (list.items, list.length) = (vec![one.clone()], Some(Scale::size(&axes)));
            let place = self.place(state, id);
            state.counted.push((axes, place));
        }
    }

    /// Numbers that go to one rank, or come from one: each of them may be anything afterwards.
    fn sent(&self, id: StmtId, args: &Args, state: &mut State) {
        let unknown = Val::Named(self.text(state, id));
        for number in args.plain.iter().filter(|v| matches!(v, Val::Num(_))) {
            replace(state, number, &unknown);
        }
    }

    /// Whether a decorator of the project around a function may scale what it returns.
    pub fn is_scaled_by_decorator(&mut self, at: FuncRef) -> bool {
        let Some(func) = self.project.func(at).parent else { return false };
        let around = self.view(FuncRef { module: at.module, func });
        let decorators = around.steps.iter().find_map(|step| match step.stmt {
            Stmt::Def { func, decorators, .. } if *func == at.func => Some(decorators),
            _ => None,
        });
        let own = |d: &crate::ir::Operand| near::function(&around, d);
        decorators.is_some_and(|all| all.iter().filter_map(own).any(|at| self.says(at, SIZES)))
    }

    fn says(&self, at: FuncRef, words: &[&str]) -> bool {
        let text = self.files[self.project.file(at.module)].slice(self.project.func(at).span);
        words.iter().any(|w| text.contains(w))
    }

    /// Nothing is known of the gradients of any module.
    pub fn lose_all(&self, state: &mut State) {
        for module in 0..state.modules.len() {
            state.lose(&Val::Module(module));
        }
    }
}
