//! Declared signatures: a function with a `# spmd:` signature is typed by it at calls, and its body is checked against it once.
//! In: the signature's clauses and a call or a root. Out: typed parameters and results, or findings. Never: inference of signatures.
//! Source: DESIGN.md sections 3 and 5. Next: `assertion.rs`, which resolves written types.

use super::assertion::DeclaredType;
use super::expr::CallArgs;
use super::finding::{AnnotationName, Declared, FindingKind};
use super::heap::Cell;
use super::machine::Machine;
use super::settings::Settings;
use super::value::{Closure, Value};
use super::world::Frame;
use crate::ir::annotation::{ClauseKind, Cond, Result_, Target, TypeExpr, TypedTarget};
use crate::ir::{Func, ParamKind, StmtId};
use crate::project::{ClassRef, FuncRef};
use crate::source::Name;
use crate::types::{LocalType, TensorType, Tri};
use std::sync::Arc;

/// The types that a signature declares.
#[derive(Default)]
pub struct Contract<'a> {
    pub params: Vec<&'a TypedTarget>,
    pub result: Option<&'a Result_>,
}

/// The contract of a function; `None` if it declares nothing.
pub fn contract(func: &Func) -> Option<Contract<'_>> {
    let mut out = Contract::default();
    for clause in func.signature.iter().flat_map(|a| &a.clauses) {
        match &clause.kind {
            ClauseKind::Signature { params, result } => {
                out.params.extend(params);
                out.result = Some(result);
            }
            ClauseKind::Named(params) => out.params.extend(params),
            _ => {}
        }
    }
    (!out.params.is_empty() || out.result.is_some()).then_some(out)
}

/// The conditions on which the declared types of a function depend.
pub fn contract_conditions(func: &Func) -> Vec<&Cond> {
    let Some(contract) = contract(func) else { return Vec::new() };
    let results: &[TypeExpr] = match contract.result {
        Some(Result_::One(ty)) => std::slice::from_ref(ty),
        Some(Result_::Tuple(types)) => types,
        None => &[],
    };
    let types = contract.params.iter().map(|p| &p.ty).chain(results);
    types.flat_map(|ty| &ty.alternatives).filter_map(|(cond, _)| cond.as_ref()).collect()
}

impl Machine<'_> {
    /// A call of a function with a declared result: arguments are checked, the result has the declared type.
    pub fn declared_call(&mut self, id: StmtId, closure: &Arc<Closure>, args: &CallArgs) -> Option<Value> {
        let func = self.project.func(closure.func);
        let contract = contract(func)?;
        let result = contract.result?;
        let by = self.stack.last()?.func;
        // Written types are resolved where they stand: among the callee's parameters.
        let bound = self.bound_for_contract(func, args);
        let call = Some(self.place(id));
        self.stack.push(super::machine::Activation::new(self.project, closure.func, call));
        self.w.frames.push(Frame::new(closure.func, func.locals().len()));
        for (param, value) in func.params.iter().zip(&bound) {
            self.set_local(param.local, value.clone());
        }
        let mut wanted = Vec::new();
        for typed in &contract.params {
            let Some(value) = self.contract_target(typed) else { continue };
            let Some(tensor) = self.as_tensor(&value) else { continue };
            let rank = self.w.heap.tensor(tensor).and_then(TensorType::rank);
            let part = self.part_of_param(func, &typed.target, args);
            if let Some(declared) = self.resolve_type(&typed.ty, rank) {
                wanted.push((tensor, declared, self.place_of(typed.ty.span), part));
            }
        }
        let types: Vec<Option<DeclaredType>> = match result {
            Result_::One(ty) => vec![self.resolve_type(ty, None)],
            Result_::Tuple(types) => types.iter().map(|t| self.resolve_type(t, None)).collect(),
        };
        self.w.frames.pop();
        self.stack.pop();
        debug_assert_eq!(self.stack.last().map(|a| a.func), Some(by));
        for (tensor, declared, place, part) in wanted {
            let at = self.part(id, part);
            if !self.declare(id, tensor, &declared, Declared::Argument, place, at) {
                return Some(self.new_tensor(TensorType::unknown()));
            }
        }
        let mut values: Vec<Value> = types.into_iter().map(|t| self.of_declared(id, t, &func.name)).collect();
        Some(match result {
            Result_::One(_) => values.pop().unwrap_or(Value::Unknown),
            Result_::Tuple(_) => Value::tuple(values),
        })
    }

    /// A call of an external function with a declared signature.
    pub fn declared_extern(&mut self, id: StmtId, path: &str, args: &CallArgs) -> Option<Value> {
        let declared = self.settings.extern_of(path)?.clone();
        let at = self.place(id);
        for (i, typed) in declared.params.iter().enumerate() {
            let Target::Name(name) = &typed.target else { continue };
            let Some(arg) = args
                .args
                .iter()
                .find(|a| a.keyword.as_ref() == Some(name))
                .or_else(|| args.args.iter().filter(|a| a.keyword.is_none()).nth(i))
            else {
                continue;
            };
            let (part, value) = (arg.part, arg.value.clone());
            let Some(tensor) = self.as_tensor(&value) else { continue };
            let rank = self.w.heap.tensor(tensor).and_then(TensorType::rank);
            let Some(wanted) = self.resolve_type(&typed.ty, rank) else { continue };
            let place = self.part(id, part);
            if !self.declare(id, tensor, &wanted, Declared::Argument, at, place) {
                return Some(self.new_tensor(TensorType::unknown()));
            }
        }
        let types = match &declared.result {
            Result_::One(ty) => std::slice::from_ref(ty),
            Result_::Tuple(types) => types.as_slice(),
        };
        let mut values = Vec::new();
        for ty in types {
            let resolved = self.resolve_type(ty, None);
            values.push(self.of_declared(id, resolved, &Name::from(path)));
        }
        Some(match &declared.result {
            Result_::One(_) => values.pop().unwrap_or(Value::Unknown),
            Result_::Tuple(_) => Value::tuple(values),
        })
    }

    /// The arguments by parameter, without defaults.
    fn bound_for_contract(&mut self, func: &Func, args: &CallArgs) -> Vec<Value> {
        let mut position = 0;
        func.params
            .iter()
            .map(|p| {
                let by_name = args.keyword(&p.name).cloned();
                let positional = matches!(p.kind, ParamKind::Normal | ParamKind::PositionalOnly);
                let by_place = positional.then(|| args.positional(position).cloned()).flatten();
                position += usize::from(positional);
                by_name.or(by_place).unwrap_or(Value::NONE)
            })
            .collect()
    }

    fn part_of_param(&self, func: &Func, target: &Target, args: &CallArgs) -> usize {
        let Target::Name(name) = target else { return 0 };
        let at = func.params.iter().position(|p| p.name == *name);
        let by_name = args.args.iter().find(|a| a.keyword.as_ref() == Some(name));
        let by_place = at.and_then(|n| args.args.iter().filter(|a| a.keyword.is_none()).nth(n));
        by_name.or(by_place).map_or(0, |a| a.part)
    }

    fn of_declared(&mut self, id: StmtId, declared: Option<DeclaredType>, _name: &Name) -> Value {
        let mut t = TensorType::of(LocalType::unknown(), Tri::Unknown);
        t.untracked = true;
        let value = Value::Tensor(self.fresh(Cell::Tensor(t)));
        if let (Some(declared), Value::Tensor(tensor)) = (declared, &value) {
            let place = self.place(id);
            self.declare(id, *tensor, &declared, Declared::Return, place, place);
        }
        value
    }

    /// The value of a target of a signature, inside the function.
    fn contract_target(&mut self, typed: &TypedTarget) -> Option<Value> {
        let func = self.func();
        if let Target::Name(name) | Target::Index(name, _) | Target::Key(name, _) = &typed.target
            && !func.params.iter().any(|p| p.name == *name)
        {
            let near = super::settings::nearest(name, func.params.iter().map(|p| &p.name));
            let place = self.place_of(typed.span);
            self.report(
                place,
                FindingKind::UnknownInAnnotation { what: AnnotationName::Parameter, name: name.clone(), near },
            );
            return None;
        }
        match &typed.target {
            Target::Return => None,
            _ => self.named_target(typed),
        }
    }

    /// At the start of a root: parameters have their declared types.
    pub fn entered_root(&mut self, root: FuncRef) {
        self.hinted_root(root);
        let func = self.func();
        self.sharded_inputs(root, func);
        let settings: &Settings = self.settings;
        for param in &func.params {
            let Some(ty) = settings.default_type(&param.name) else { continue };
            let value = self.local(param.local);
            if !matches!(value, Value::Sym(_)) || self.annotated_other(&param.name) {
                continue;
            }
            let by = self.place_of(param.span);
            if let (Some(declared), Some(tensor)) = (self.resolve_type(ty, None), self.as_tensor(&value)) {
                self.declare(StmtId(0), tensor, &declared, Declared::Comment, by, by);
            }
        }
        let Some(contract) = contract(func) else { return };
        let typed: Vec<&TypedTarget> = contract.params.clone();
        for typed in typed {
            let Some(value) = self.contract_target(typed) else { continue };
            let Some(tensor) = self.as_tensor(&value) else { continue };
            if let Some(declared) = self.resolve_type(&typed.ty, None) {
                let by = self.place_of(typed.ty.span);
                self.declare(StmtId(0), tensor, &declared, Declared::Comment, by, by);
            }
        }
    }

    pub fn entered(&mut self, func: FuncRef) {
        self.out.executed.insert(func);
        self.noticed(func);
    }

    /// At a return: the row of the result, and the check against the declared result.
    pub fn returned(&mut self, id: StmtId, value: &Value) {
        let func = self.func();
        let place = self.place_of(func.name_span);
        self.record_at(place, &Name::from("return"), value);
        self.mode_result(id, value);
        self.layer_returned(id, value);
        self.ruled_returned(id, value);
        let Some(Contract { result: Some(result), .. }) = contract(func) else { return };
        let module = self.activation().module;
        // What such a forward is depends on its backward as well; the derivation compares both.
        let class = func.class.filter(|_| func.name == "forward").map(|class| ClassRef { module, class });
        if class.is_some_and(|class| self.is_autograd_function(class)) {
            return;
        }
        let values = match (result, value) {
            (Result_::Tuple(types), value) => {
                let Some(items) = self.literal_items(value) else { return };
                types.iter().zip(items).collect::<Vec<(&TypeExpr, Value)>>()
            }
            (Result_::One(ty), value) => vec![(ty, value.clone())],
        };
        for (ty, value) in values {
            let Some(tensor) = self.as_tensor(&value) else { continue };
            let rank = self.w.heap.tensor(tensor).and_then(TensorType::rank);
            if let Some(declared) = self.resolve_type(ty, rank) {
                let (by, at) = (self.place_of(ty.span), self.part(id, 0));
                self.declare(id, tensor, &declared, Declared::Return, by, at);
            }
        }
    }
}
