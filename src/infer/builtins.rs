//! Builtins of Python, and methods of lists, dicts and tuples. In: a name and arguments. Out: a value.
//! Never: anything about tensors beyond passing them through. Next: `repair.rs`.

use super::expr::CallArgs;
use super::heap::{Cell, DictCell, ListCell};
use super::machine::{Eval, Machine};
use super::value::Value;
use crate::ir::annotation::Atom;
use crate::ir::{Const, StmtId};
use crate::plan::Written;
use crate::rules::Entry;
use crate::source::Name;

impl Machine<'_> {
    pub fn builtin(&mut self, id: StmtId, name: &str, args: &CallArgs) -> Eval {
        let first = args.positional(0).cloned();
        let value = match name {
            "len" => first.map_or(Value::Unknown, |v| self.members_counted(&v).unwrap_or_else(|| self.length(&v))),
            "range" => self.range(args),
            "isinstance" | "issubclass" => self.is_instance(args),
            "hasattr" => self.has_attr(args),
            "getattr" => return self.get_attr(id, args),
            "setattr" => {
                if let (Some(base), Some(Value::Const(Const::Str(name))), Some(value)) =
                    (args.positional(0), args.positional(1), args.positional(2))
                {
                    let (base, name, value) = (base.clone(), name.clone(), value.clone());
                    return self.store_attr(id, &base, &name, value);
                }
                Value::NONE
            }
            "tuple" => match first {
                None => Value::tuple(Vec::new()),
                Some(v) => match self.literal_items(&v) {
                    Some(items) => Value::tuple(items),
                    // As many elements as a list that is not known.
                    None => self.copied(name, &v),
                },
            },
            "list" | "set" | "frozenset" | "sorted" | "reversed" | "iter" | "filter" => match first {
                None => Value::List(self.fresh(Cell::List(ListCell::default()))),
                Some(v) => self.copied(name, &v),
            },
            "dict" => self.new_dict(args),
            "enumerate" => self.enumerate(first),
            "zip" => self.zip(args),
            "next" => first.map_or(Value::Unknown, |v| self.element_of(&v)),
            "map" => self.mapped(id, args),
            "reduce" => self.folded(id, args),
            "super" => self.super_value(args),
            "divmod" => self.divided_with_rest(id, args),
            // Of the lowered `round(a / b)` only what is no constant is the same rounded.
            "round" if matches!(first, Some(Value::Const(_))) => Value::Number(None),
            "int" | "float" | "round" | "abs" => match first {
                Some(
                    v @ (Value::Const(_)
                    | Value::Number(_)
                    | Value::Share(_)
                    | Value::Rank(_)
                    | Value::Edge(_)
                    | Value::Size(_)
                    | Value::RankCond(_)),
                ) if name != "abs" => v,
                Some(v @ (Value::Tensor(_) | Value::Sym(_))) if self.is_tensor_like(&v) && name == "abs" => {
                    self.operator(id, "abs", &[v])
                }
                _ => Value::Number(None),
            },
            "bool" => first.map_or(Value::FALSE, |v| match &v {
                Value::Unknown | Value::Tensor(_) | Value::Number(_) | Value::Share(_) => Value::Unknown,
                _ => {
                    let f = self.formula(&v);
                    super::expr::cond(f)
                }
            }),
            "max" | "min" | "sum" => self.extremum(id, name, args),
            "any" | "all" | "callable" | "id" | "hash" | "str" | "repr" | "format" | "type" | "vars" | "open"
            | "input" | "print" | "object" | "property" | "delattr" => Value::Unknown,
            "slice" => {
                let at = |n: usize| args.positional(n).cloned().unwrap_or(Value::NONE);
                let parts = match args.args.len() {
                    1 => [Value::NONE, at(0), Value::NONE],
                    _ => [at(0), at(1), at(2)],
                };
                Value::Slice(std::sync::Arc::new(parts))
            }
            "staticmethod" | "classmethod" => first.unwrap_or(Value::Unknown),
            _ => Value::Unknown,
        };
        Eval::One(value)
    }

    /// `map(f, xs, ys)` of sequences whose elements are known.
    fn mapped(&mut self, id: StmtId, args: &CallArgs) -> Value {
        let Some((callee, sequences)) = args.args.split_first() else { return Value::Unknown };
        let rows: Option<Vec<Vec<Value>>> = sequences.iter().map(|s| self.literal_items(&s.value)).collect();
        let Some(rows) = rows else { return Value::Unknown };
        let count = rows.iter().map(Vec::len).min().unwrap_or(0);
        if args.open || count > super::limits::MAX_UNROLLED {
            self.forget(args);
            return Value::Unknown;
        }
        let mut items = Vec::new();
        for i in 0..count {
            let given = CallArgs::of(rows.iter().map(|row| row[i].clone()).collect());
            items.push(self.called_once(id, &callee.value, &given));
        }
        Value::List(self.fresh(Cell::List(ListCell { items, rest: None })))
    }

    /// `functools.reduce(f, xs, start)` of a sequence whose elements are known.
    fn folded(&mut self, id: StmtId, args: &CallArgs) -> Value {
        let items = args.positional(1).and_then(|s| self.literal_items(s));
        let (Some(callee), Some(items)) = (args.positional(0).cloned(), items) else {
            self.forget(args);
            return Value::Unknown;
        };
        if items.len() > super::limits::MAX_UNROLLED {
            self.forget(args);
            return Value::Unknown;
        }
        let all = args.positional(2).cloned().into_iter().chain(items);
        all.reduce(|a, b| self.called_once(id, &callee, &CallArgs::of(vec![a, b]))).unwrap_or(Value::Unknown)
    }

    /// What a call gives; several ends of it are joined.
    fn called_once(&mut self, id: StmtId, callee: &Value, args: &CallArgs) -> Value {
        let before = self.w.clone();
        match self.call(id, callee, args) {
            Eval::One(value) => value,
            // No end at all is a call that always raises.
            Eval::Many(outcomes) => self.joined(outcomes).unwrap_or_else(|| {
                self.w = before;
                Value::Unknown
            }),
        }
    }

    fn length(&mut self, value: &Value) -> Value {
        match self.literal_items(value) {
            Some(items) => Value::int(items.len() as i64),
            None => Value::Number(None),
        }
    }

    fn range(&mut self, args: &CallArgs) -> Value {
        let bounds: Option<Vec<i64>> = args.args.iter().map(|a| a.value.as_int()).collect();
        let items: Option<Vec<Value>> = match bounds.as_deref() {
            Some([stop]) => Some((0..*stop).take(super::limits::MAX_LIST + 1).map(Value::int).collect()),
            Some([start, stop]) => Some((*start..*stop).take(super::limits::MAX_LIST + 1).map(Value::int).collect()),
            _ => None,
        };
        match items.filter(|i| i.len() <= super::limits::MAX_LIST) {
            Some(items) => Value::List(self.fresh(Cell::List(ListCell { items, rest: None }))),
            None => {
                let rest = match args.args.as_slice() {
                    [one] if self.deriving.is_some() => match &one.value {
                        Value::Size(axes) => Self::every_rank(axes),
                        _ => Value::Number(None),
                    },
                    // Numbers between bounds that differ by rank do so as well.
                    bounds => {
                        bounds.iter().fold(Value::Number(None), |number, bound| self.arithmetic(&number, &bound.value))
                    }
                };
                Value::List(self.fresh(Cell::List(ListCell { items: Vec::new(), rest: Some(rest) })))
            }
        }
    }

    fn is_instance(&mut self, args: &CallArgs) -> Value {
        let (Some(value), Some(class)) = (args.positional(0), args.positional(1)) else { return Value::Unknown };
        let classes = match class {
            Value::Tuple(items) => items.to_vec(),
            other => vec![other.clone()],
        };
        let names: Vec<Name> = classes
            .iter()
            .map(|c| match c {
                Value::Path(path) => path.clone(),
                _ => Name::default(),
            })
            .collect();
        let answer = |b: bool| Value::Const(Const::Bool(b));
        let has = |n: &str| names.iter().any(|x| x == n);
        let known = names.iter().all(|n| !n.is_empty());
        match value {
            Value::Tuple(_) if has("builtins.tuple") => answer(true),
            Value::List(_) if has("builtins.list") => answer(true),
            Value::Dict(_) if has("builtins.dict") => answer(true),
            Value::Tensor(id) if names.len() == 1 && self.is_distributed(*id, &names[0]).is_some() => {
                answer(self.is_distributed(*id, &names[0]) == Some(true))
            }
            Value::Atom(_) | Value::Placement(_) => {
                let asked: Vec<Option<bool>> = names.iter().map(|n| self.is_placement(value, n)).collect();
                match asked.contains(&Some(true)) {
                    false if asked.contains(&None) => Value::Unknown,
                    any => answer(any),
                }
            }
            Value::Tensor(_) if has("torch.Tensor") => answer(true),
            Value::Tuple(_) | Value::List(_) | Value::Dict(_) | Value::Const(_)
                if known && has("torch.Tensor") && names.len() == 1 =>
            {
                answer(false)
            }
            Value::Tensor(_) if known && names.iter().all(|n| n.starts_with("builtins.")) => answer(false),
            Value::Const(Const::None) if known => answer(false),
            Value::Object(id) => {
                let class_of = self.w.heap.object(*id).map(|o| o.class.clone());
                match (class_of, classes.as_slice()) {
                    (Some(super::heap::ObjectClass::Project(c)), [Value::Class(asked)]) => {
                        let order = self.settings.linearized(self.project, c);
                        if order.contains(asked) { answer(true) } else { Value::Unknown }
                    }
                    _ => Value::Unknown,
                }
            }
            _ => Value::Unknown,
        }
    }

    /// Whether a placement is of the class that is called to make one of its kind; `None` where that is no such class.
    fn is_placement(&self, value: &Value, class: &str) -> Option<bool> {
        let Some(Entry::Intrinsic(rule)) = self.rules.get(class) else { return None };
        let written = match value {
            Value::Placement(written) => Some(&**written),
            _ => None,
        };
        match rule.does.as_str() {
            "shard-type" => Some(matches!(value, Value::Atom(Atom::Shard(_)))),
            "dtensor-shard" => match written {
                // Whether a strided shard is one depends on the version.
                Some(Written::Strided { .. }) => None,
                other => Some(matches!(other, Some(Written::Shard { .. }))),
            },
            "dtensor-replicate" => Some(matches!(written, Some(Written::Replicate))),
            "dtensor-partial" => Some(matches!(written, Some(Written::Partial(_)))),
            _ => None,
        }
    }

    fn has_attr(&mut self, args: &CallArgs) -> Value {
        match (args.positional(0), args.positional(1)) {
            (Some(object @ Value::Object(_)), Some(Value::Const(Const::Str(name)))) => {
                let known = match object {
                    Value::Object(id) => self.w.heap.object(*id).is_some_and(|o| o.get(name).is_some()),
                    _ => false,
                };
                if known { Value::TRUE } else { Value::Unknown }
            }
            (Some(Value::Sym(path)), Some(Value::Const(Const::Str(name)))) => {
                Value::Sym(Name::from(format!("hasattr({path}, {name})")))
            }
            _ => Value::Unknown,
        }
    }

    fn get_attr(&mut self, id: StmtId, args: &CallArgs) -> Eval {
        let (Some(base), Some(Value::Const(Const::Str(name)))) = (args.positional(0).cloned(), args.positional(1))
        else {
            return Eval::One(Value::Unknown);
        };
        let name = name.clone();
        match (&base, args.positional(2)) {
            (Value::Sym(path), Some(_)) if !self.settings.is_config(path) => Eval::One(Value::Unknown),
            (Value::Sym(_), Some(_)) => Eval::One(self.attr_quietly(&base, &name)),
            (Value::Tensor(_), Some(default)) => Eval::One(default.clone()),
            _ => self.attr(id, &base, &name),
        }
    }

    fn copied(&mut self, name: &str, value: &Value) -> Value {
        let cell = match self.literal_items(value) {
            Some(mut items) => {
                if name == "reversed" {
                    items.reverse();
                }
                ListCell { items, rest: None }
            }
            None => ListCell { items: Vec::new(), rest: Some(self.element_of(value)) },
        };
        let unordered = matches!(name, "set" | "frozenset" | "sorted" | "filter") && cell.items.len() > 1;
        let cell = if unordered {
            let joined = self.join_values(&cell.items);
            ListCell { items: Vec::new(), rest: Some(joined) }
        } else {
            cell
        };
        Value::List(self.fresh(Cell::List(cell)))
    }

    fn new_dict(&mut self, args: &CallArgs) -> Value {
        let mut dict = match args.positional(0) {
            None => DictCell::default(),
            Some(Value::Dict(id)) => match self.w.heap.get(*id) {
                Some(Cell::Dict(d)) => d.clone(),
                _ => DictCell { entries: Vec::new(), rest: Some(Value::Unknown) },
            },
            Some(pairs) => self.dict_of_pairs(pairs),
        };
        if args.open {
            dict.open();
        }
        for arg in &args.args {
            if let Some(name) = &arg.keyword {
                dict.set(Value::str(name.clone()), arg.value.clone());
            }
        }
        Value::Dict(self.fresh(Cell::Dict(dict)))
    }

    fn enumerate(&mut self, first: Option<Value>) -> Value {
        let Some(value) = first else { return Value::Unknown };
        let cell = match self.literal_items(&value) {
            Some(items) => ListCell {
                items: items
                    .into_iter()
                    .enumerate()
                    .map(|(i, v)| Value::tuple(vec![Value::int(i as i64), v]))
                    .collect(),
                rest: None,
            },
            None => {
                let element = self.element_of(&value);
                ListCell { items: Vec::new(), rest: Some(Value::tuple(vec![Value::Number(None), element])) }
            }
        };
        Value::List(self.fresh(Cell::List(cell)))
    }

    fn zip(&mut self, args: &CallArgs) -> Value {
        let columns: Option<Vec<Vec<Value>>> =
            args.args.iter().filter(|a| a.keyword.is_none()).map(|a| self.literal_items(&a.value)).collect();
        let cell = match columns.filter(|_| !args.open) {
            Some(columns) => {
                let n = columns.iter().map(Vec::len).min().unwrap_or(0);
                let rows = (0..n).map(|i| Value::tuple(columns.iter().map(|c| c[i].clone()).collect())).collect();
                ListCell { items: rows, rest: None }
            }
            None => {
                let values: Vec<Value> = args.args.iter().map(|a| a.value.clone()).collect();
                let row = values.iter().map(|v| self.element_of(v)).collect();
                ListCell { items: Vec::new(), rest: Some(Value::tuple(row)) }
            }
        };
        Value::List(self.fresh(Cell::List(cell)))
    }

    /// `super()` in a method: the receiver, looked up after the method's class.
    fn super_value(&mut self, _args: &CallArgs) -> Value {
        let at = self.activation();
        let func = self.project.func(at);
        let Some(class) = func.class else { return Value::Unknown };
        let class = crate::project::ClassRef { module: at.module, class };
        match func.params.first().map(|p| p.local) {
            Some(local) => {
                let receiver = self.local(local);
                Value::Super(std::sync::Arc::new((receiver, class)))
            }
            None => Value::Unknown,
        }
    }

    /// `max(a, b)` of numbers; `sum(tensors)` is their addition.
    fn extremum(&mut self, id: StmtId, name: &str, args: &CallArgs) -> Value {
        let values = match args.args.as_slice() {
            // Of the sizes on the ranks before this one.
            [one] if self.deriving.is_some() && matches!(one.value, Value::Number(Some(_))) => {
                return one.value.clone();
            }
            [one] => self.literal_items(&one.value).unwrap_or_else(|| vec![self.element_of(&one.value)]),
            many => many.iter().map(|a| a.value.clone()).collect(),
        };
        let integer = |v: &Value| matches!(v, Value::Sym(path) if self.annotated_other(path));
        let values: Vec<Value> = match self.deriving {
            Some(_) => values.into_iter().map(|v| if integer(&v) { Value::Number(None) } else { v }).collect(),
            None => values,
        };
        if let Some(value) = self.bounded(name, &values) {
            return value;
        }
        if values.iter().all(Value::is_number) {
            let mut values = values.into_iter();
            let Some(first) = values.next() else { return Value::Number(None) };
            return values.fold(first, |a, b| self.arithmetic(&a, &b));
        }
        if name != "sum" {
            return Value::Unknown;
        }
        let mut values = values.into_iter();
        let Some(first) = values.next() else { return Value::Unknown };
        values.fold(first, |a, b| self.operator(id, "add", &[a, b]))
    }

    /// Methods of lists, dicts, tuples and strings.
    pub fn container_method(&mut self, base: &Value, name: &Name, args: &CallArgs) -> Value {
        let first = args.positional(0).cloned();
        match (base, name.as_str()) {
            (Value::List(id), "append" | "add" | "insert") => {
                let value = if name == "insert" { args.positional(1).cloned() } else { first };
                let Some(mut cell) = self.list_cell(*id) else { return Value::NONE };
                let value = value.unwrap_or(Value::Unknown);
                if name == "append"
                    && cell.rest.is_none()
                    && self.loop_depth == 0
                    && cell.items.len() < super::limits::MAX_LIST
                {
                    cell.items.push(value);
                } else {
                    let all: Vec<Value> = cell.items.drain(..).chain(cell.rest.take()).chain([value]).collect();
                    cell.rest = Some(self.join_values(&all));
                }
                self.w.heap.insert(*id, Cell::List(cell));
                Value::NONE
            }
            (Value::List(id), "extend") => {
                let Some(mut cell) = self.list_cell(*id) else { return Value::NONE };
                match first.as_ref().and_then(|v| self.literal_items(v)) {
                    Some(items) if cell.rest.is_none() && self.loop_depth == 0 => cell.items.extend(items),
                    _ => cell = ListCell { items: Vec::new(), rest: Some(Value::Unknown) },
                }
                self.w.heap.insert(*id, Cell::List(cell));
                Value::NONE
            }
            (Value::List(id), "pop" | "remove" | "clear" | "sort" | "reverse") => {
                let Some(cell) = self.list_cell(*id) else { return Value::Unknown };
                let all: Vec<Value> = cell.items.iter().chain(&cell.rest).cloned().collect();
                let any = self.join_values(&all);
                self.w.heap.insert(*id, Cell::List(ListCell { items: Vec::new(), rest: Some(any.clone()) }));
                if name == "pop" { any } else { Value::NONE }
            }
            (Value::Dict(id), _) => self.dict_method(*id, name, args),
            (_, "copy") => base.clone(),
            _ => Value::Unknown,
        }
    }

    fn dict_method(&mut self, id: super::value::ObjId, name: &str, args: &CallArgs) -> Value {
        let Some(Cell::Dict(dict)) = self.w.heap.get(id).cloned() else { return Value::Unknown };
        let list = |items: Vec<Value>, rest: Option<Value>| Cell::List(ListCell { items, rest });
        match name {
            "items" => {
                let items = dict.entries.iter().map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()])).collect();
                let rest = dict.rest.map(|value| Value::tuple(vec![Value::Unknown, value]));
                Value::List(self.fresh(Cell::List(ListCell { items, rest })))
            }
            "keys" => Value::List(self.fresh(list(keys(&dict), dict.rest.map(|_| Value::Unknown)))),
            "values" => Value::List(self.fresh(list(values(&dict), dict.rest))),
            "get" | "pop" | "setdefault" => {
                let Some(key) = args.positional(0) else { return Value::Unknown };
                let found = dict.get(key).cloned();
                match (found, dict.is_open()) {
                    (Some(value), _) => value,
                    (None, false) => {
                        let value = args.positional(1).cloned().unwrap_or(Value::NONE);
                        if name == "setdefault"
                            && let Some(Cell::Dict(cell)) = self.w.heap.get_mut(id)
                        {
                            cell.set(key.clone(), value.clone());
                        }
                        value
                    }
                    (None, true) => Value::Unknown,
                }
            }
            "update" => {
                let mut dict = dict;
                match args.positional(0) {
                    Some(Value::Dict(other)) => {
                        if let Some(Cell::Dict(other)) = self.w.heap.get(*other).cloned() {
                            dict.extend(other);
                        }
                    }
                    Some(_) => dict.open(),
                    None => {}
                }
                for arg in &args.args {
                    if let Some(name) = &arg.keyword {
                        dict.set(Value::str(name.clone()), arg.value.clone());
                    }
                }
                self.w.heap.insert(id, Cell::Dict(dict));
                Value::NONE
            }
            "copy" => Value::Dict(self.fresh(Cell::Dict(dict))),
            _ => Value::Unknown,
        }
    }
}

fn keys(dict: &DictCell) -> Vec<Value> {
    dict.entries.iter().map(|(key, _)| key.clone()).collect()
}

fn values(dict: &DictCell) -> Vec<Value> {
    dict.entries.iter().map(|(_, value)| value.clone()).collect()
}
