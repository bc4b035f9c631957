//! Kernels that communicate and multiply in one, while a function is derived. In: the call. Out: the terms of what it gives.
//! Never: their types elsewhere. Source: `rules/collectives/functional.toml`. Next: `terms.rs`.

use super::super::expr::CallArgs;
use super::super::heap::{Cell, ListCell};
use super::super::machine::Machine;
use super::super::value::Value;
use crate::rules::IntrinsicRule;
use crate::source::Name;
use crate::types::{AxisSet, Linearity, Reduction, Shape, TensorType, Term};
use std::sync::Arc;

impl Machine<'_> {
    /// What a fused kernel gives; unknown where that is not followed.
    pub fn fused(&mut self, rule: &IntrinsicRule, args: &CallArgs) -> Value {
        self.fused_term(rule, args).unwrap_or_else(|| {
            self.unresolved(args, &rule.name);
            Value::Unknown
        })
    }

    /// `gather-matmul` and `matmul-scatter`; `None` if the rule is neither, or the group or the dim is not known.
    fn fused_term(&mut self, rule: &IntrinsicRule, args: &CallArgs) -> Option<Value> {
        self.deriving.as_ref()?;
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let arg = |name: &str| {
            let at = rule.args.index(name)?;
            bound.first(at).map(|i| args.args[i].value.clone())
        };
        let (axes, dim) = (self.axes_of_value(&arg("group_name")?)?, self.dim_of(&arg("dim")?)?);
        let a = self.term(&arg("A")?);
        match rule.does.as_str() {
            "gather-matmul" => {
                let others = self.literal_items(&arg("Bs")?)?;
                let whole = Arc::new(Term::AllGather { axes, dim, x: a });
                let products: Vec<Value> = others.iter().map(|b| self.product_of(&whole, b)).collect();
                let products = Value::List(self.fresh(Cell::List(ListCell { items: products, rest: None })));
                let whole = self.followed(whole);
                Some(Value::tuple(vec![whole, products]))
            }
            "matmul-scatter" => {
                let product = Arc::new(Term::math(Linearity::Multilinear, vec![a, self.term(&arg("B")?)]));
                Some(self.followed(Arc::new(scattered(&product, axes, dim))))
            }
            _ => None,
        }
    }

    fn product_of(&mut self, a: &Arc<Term>, b: &Value) -> Value {
        let product = Term::math(Linearity::Multilinear, vec![a.clone(), self.term(b)]);
        self.followed(Arc::new(product))
    }

    fn followed(&mut self, term: Arc<Term>) -> Value {
        let rank = self.deriving.as_ref().map_or(0, |d| d.rank);
        self.new_tensor(TensorType { term: Some(term), shape: Some(Shape(vec![None; rank])), ..TensorType::unknown() })
    }
}

fn scattered(x: &Arc<Term>, axes: AxisSet, dim: usize) -> Term {
    Term::ReduceScatter { axes, dim, by: Reduction::Sum, x: x.clone() }
}
