//! Conversions with their types as arguments (`src=`, `dst=`): what the function refuses. In: a call with its arguments bound.
//! Out: the typed result, or a finding. Never: what the ranks do with it, which `collective.rs` says. Source: DESIGN.md section 4;
//! spmd_types 0.3.1 `_collectives.py`. Next: `collective.rs`.

use super::collective::{Call, Side, short, show, side};
use super::expr::CallArgs;
use super::finding::{ArgumentProblem, FindingKind};
use super::machine::Machine;
use super::value::Value;
use crate::ir::{Const, StmtId};
use crate::rules::{Pattern, Transition};
use crate::source::Name;
use crate::types::{AxisType, TensorType, Tri};

impl Machine<'_> {
    /// With `inplace=True` the result is the tensor that was given.
    fn written_back(&mut self, call: &Call<'_>, args: &CallArgs, value: Value) -> Value {
        let in_place = args.keyword("inplace").and_then(Value::as_bool) == Some(true);
        let made = self.tensor(&value).filter(|_| in_place).map(|t| t.local.clone());
        match (made, self.w.heap.tensor(call.input).cloned()) {
            (Some(local), Some(t)) => {
                self.retype(call.input, TensorType { local, ..t });
                Value::Tensor(call.input)
            }
            _ => value,
        }
    }

    /// `src=`, `dst=`: the pair must be legal, and the value must have the source type.
    pub(super) fn converted(&mut self, id: StmtId, call: &Call<'_>, args: &CallArgs) -> Result<Value, ()> {
        let (source, result) = match (self.type_argument(call, args, "src"), self.type_argument(call, args, "dst")) {
            (s, d) if call.rule.args.index("src").is_none() => {
                let fixed = call.rule.legal.first().map(|t| (t.source.set, t.result.set));
                let _ = (s, d);
                match fixed {
                    Some((s, d)) => (Side { set: s, shard: None }, Side { set: d, shard: None }),
                    None => return Ok(self.new_tensor(TensorType::unknown())),
                }
            }
            (Some(Value::Atom(s)), Some(Value::Atom(d))) => (side(s), side(d)),
            (None, _) => return self.bad_arguments(id, call, ArgumentProblem::MissingSource),
            (_, None) => return self.bad_arguments(id, call, ArgumentProblem::MissingResult),
            (Some(s), Some(d)) => {
                // A member of a class of the project may be one under another name.
                let known = |v: &Value| {
                    !matches!(
                        v,
                        Value::Atom(_)
                            | Value::Unknown
                            | Value::Sym(_)
                            | Value::Cond(_)
                            | Value::Path(_)
                            | Value::Object(_)
                    )
                };
                if known(&s) || known(&d) {
                    return self.bad_arguments(id, call, ArgumentProblem::NotAType);
                }
                return Ok(self.new_tensor(TensorType::unknown()));
            }
        };
        let rank = self.w.heap.tensor(call.input).and_then(TensorType::rank);
        self.check_counted(id, call, source)?;
        let source = self.in_range(id, call, source, rank)?;
        let result = self.in_range(id, call, result, rank)?;
        self.check_precision(id, call, args, source, result)?;
        self.check_pair(id, call, args, source, result)?;
        self.check_dims(id, call, args, source, result)?;
        self.check_even(id, call, source, result)?;
        let value = self.apply_transition(id, call, source, result)?;
        Ok(self.written_back(call, args, value))
    }

    pub(super) fn bad_arguments<T>(&mut self, id: StmtId, call: &Call<'_>, problem: ArgumentProblem) -> Result<T, ()> {
        let kind = FindingKind::BadArguments { name: short(&call.rule.name), problem };
        self.report(self.place(id), kind);
        Err(())
    }

    /// A gradient that is reduced in 16 bits has to be asked for, by those collectives that can be asked.
    pub(super) fn check_precision(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        args: &CallArgs,
        source: Side,
        result: Side,
    ) -> Result<(), ()> {
        let summed_backward = result.set == AxisType::R && source.set != AxisType::R && call.rule.op != "reinterpret";
        let Some(input) = self.w.heap.tensor(call.input) else { return Ok(()) };
        let Some(asked) = call.rule.args.index("backward_options") else { return Ok(()) };
        let given = call.bound.first(asked).is_some();
        let narrow = |name: &str| {
            let at = call.rule.args.index(name).and_then(|p| call.bound.first(p));
            at.is_some_and(|i| super::op_results::is_reduced(&args.args[i].value))
        };
        let reduced = input.reduced || narrow("op_dtype") || narrow("out_dtype");
        if summed_backward && reduced && !given && input.grad == Tri::Yes && self.w.modes.grad {
            return self.bad_arguments(id, call, ArgumentProblem::ReducedPrecision);
        }
        Ok(())
    }

    /// The run-time checker compares the dim that a call states with the one that is split as they are written.
    fn check_counted(&mut self, id: StmtId, call: &Call<'_>, source: Side) -> Result<(), ()> {
        let checked = self.w.modes.typecheck.is_some() && self.is_global() && source.shard.is_some_and(|dim| dim < 0);
        let Some(axis) = call.axes.single().filter(|_| checked) else { return Ok(()) };
        match self.w.heap.tensor(call.input).and_then(|t| t.local.get(axis).shard) {
            Some(dim) => self.bad_arguments(id, call, ArgumentProblem::CountedFromEnd(dim)),
            None => Ok(()),
        }
    }

    /// A shard dim counted from 0; out of range is a finding.
    pub(super) fn in_range(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        side: Side,
        rank: Option<usize>,
    ) -> Result<Side, ()> {
        let (Some(dim), Some(rank)) = (side.shard, rank) else { return Ok(side) };
        if rank == 0 && self.w.modes.typecheck.is_none() {
            // A scalar here is more likely a shape that was followed wrongly than a scalar that somebody splits.
            return Ok(Side { shard: None, ..side });
        }
        match crate::types::normalize_dim(dim, rank) {
            Some(at) => Ok(Side { shard: i64::try_from(at).ok(), ..side }),
            None => {
                let operand = self.input_at(id, call, None);
                self.report(self.place(id), FindingKind::ShardOutOfRange { dim, rank, operand: Some(operand) });
                Err(())
            }
        }
    }

    /// The pair of types against the function's table.
    fn check_pair(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        args: &CallArgs,
        source: Side,
        result: Side,
    ) -> Result<(), ()> {
        let fits = |p: &Pattern, s: Side| p.set == s.set && (s.set != AxisType::V || p.any_shard == s.shard.is_some());
        let listed = |table: &[Transition]| table.iter().any(|t| fits(&t.source, source) && fits(&t.result, result));
        let moved = matches!((source.shard, result.shard), (Some(a), Some(b)) if a != b);
        if listed(&call.rule.legal) && (!moved || call.rule.moves_shard) {
            return Ok(());
        }
        let expert = listed(&call.rule.expert);
        let given = call.rule.args.index("expert_mode").and_then(|p| call.bound.first(p)).map(|i| &args.args[i].value);
        match given {
            Some(Value::Const(Const::Bool(true))) if expert => return Ok(()),
            Some(Value::Const(_)) | None => {}
            Some(_) if expert => return Ok(()),
            Some(_) => {}
        }
        let kind = FindingKind::IllegalConversion {
            name: short(&call.rule.name),
            source: show(source),
            result: show(result),
            expert,
        };
        self.report(self.place(id), kind);
        Err(())
    }

    /// Explicit dims that contradict `S(i)`.
    fn check_dims(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        args: &CallArgs,
        source: Side,
        result: Side,
    ) -> Result<(), ()> {
        let both = source.shard.is_some() && result.shard.is_some();
        let expected = [
            ("gather_dim", source.shard),
            ("scatter_dim", result.shard),
            ("split_dim", if both { result.shard } else { source.shard }),
            ("concat_dim", if both { source.shard } else { result.shard }),
        ];
        for (name, shard) in expected {
            let (Some(given), Some(shard)) = (self.int_argument(call, args, name), shard) else { continue };
            if given != shard {
                let kind =
                    FindingKind::DimConflict { name: short(&call.rule.name), argument: Name::from(name), given, shard };
                self.report(self.place(id), kind);
                return Err(());
            }
        }
        Ok(())
    }

    /// An all-to-all splits one dim over the ranks, which must divide it.
    fn check_even(&mut self, id: StmtId, call: &Call<'_>, source: Side, result: Side) -> Result<(), ()> {
        let (Some(from), Some(to)) = (source.shard, result.shard) else { return Ok(()) };
        let (Some(axis), Ok(dim)) = (call.axes.single(), usize::try_from(to)) else { return Ok(()) };
        let given = |name: &str| call.rule.args.index(name).and_then(|p| call.bound.first(p)).is_some();
        let sizes = given("output_split_sizes") || given("input_split_sizes");
        if sizes || (from == to && call.rule.op != "all_to_all") {
            return Ok(());
        }
        let size =
            self.w.heap.tensor(call.input).and_then(|t| t.shape.as_ref()).and_then(|s| s.0.get(dim).copied()).flatten();
        let ranks = self.axis_size(axis);
        if let (Some(size), Some(ranks)) = (size, ranks)
            && size % i64::try_from(ranks).unwrap_or(1) != 0
        {
            let kind = FindingKind::UnevenShard { name: short(&call.rule.name), axis: axis.clone(), dim, size, ranks };
            self.report(self.place(id), kind);
            return Err(());
        }
        Ok(())
    }
}
