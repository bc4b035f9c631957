//! Tables of functions and classes in the body of a module: `HOOKS = {"first": first}`. In: what is read from one by a constant. Out: the
//! entry. Never: a table that any text may change. Next: `items.rs`, which asks.

use super::external::default_of;
use super::machine::Machine;
use super::practice::view::View;
use super::value::Value;
use crate::ir::{Arg, ArgKind, BuildKind, Const, FuncId, Item, Operand, Rvalue};
use crate::project::{FuncRef, ModuleId, Resolved};
use crate::rules::Entry;
use crate::source::Name;
use std::sync::Arc;

/// The entries of a table, by their keys or positions.
pub type Table = Arc<Vec<(Const, Value)>>;

/// Part of the names of flags that decide what a layer is.
const DECIDES: &str = "parallel";

/// Methods of a table that only read it.
const READS: &[&str] = &[".get(", ".items(", ".keys(", ".values("];

impl Machine<'_> {
    /// What a table of a module has under a key that is written down.
    pub fn table_entry(&mut self, path: &Name, index: &Value) -> Option<Value> {
        let Value::Const(key @ (Const::Str(_) | Const::Int(_))) = index else { return None };
        if !self.tables.contains_key(path) {
            let table = self.table(path);
            self.tables.insert(path.clone(), table);
        }
        let table = self.tables.get(path)?.as_ref()?;
        table.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
    }

    fn table(&mut self, path: &Name) -> Option<Table> {
        if !path.contains('.') {
            return None;
        }
        let Resolved::Value(module, name) = self.project.path(path) else { return None };
        let body = FuncRef { module, func: FuncId(0) };
        let (project, rules, files) = (self.project, self.rules, self.files);
        let local = project.func(body).locals().named(&name)?;
        let view = View::new(project, rules, files, body);
        let [step] = view.defs(local) else { return None };
        let Rvalue::Build { kind, items } = view.value(*step)? else { return None };
        let operands: Option<Vec<&Operand>> = items
            .iter()
            .map(|item| match item {
                Item::One(operand) => Some(operand),
                Item::Star(_) => None,
            })
            .collect();
        let operands = operands?;
        let pairs: Vec<(Const, &Operand)> = match kind {
            BuildKind::Dict => operands
                .chunks_exact(2)
                .map(|pair| match pair[0] {
                    Operand::Const(key) => Some((key.clone(), pair[1])),
                    _ => None,
                })
                .collect::<Option<_>>()?,
            BuildKind::List | BuildKind::Tuple => (0_i64..).map(Const::Int).zip(operands.iter().copied()).collect(),
            BuildKind::Set | BuildKind::Slice | BuildKind::Str => return None,
        };
        let mut table = Vec::new();
        for (key, operand) in pairs {
            table.push((key, self.entry(module, &view, operand)?));
        }
        self.is_only_read(module, &name).then(|| Arc::new(table))
    }

    /// What a configuration in the body of a module has under a name: as it is given, or by default. Nothing if any text sets it.
    pub fn configured(&mut self, path: &Name, attr: &Name) -> Option<Value> {
        if !attr.contains(DECIDES) || !path.contains('.') {
            return None;
        }
        let key = Name::from(format!("{path}.{attr}"));
        if let Some(known) = self.configured.get(&key) {
            return known.clone();
        }
        let value = self.of_configuration(path, attr);
        self.configured.insert(key, value.clone());
        value
    }

    fn of_configuration(&self, path: &Name, attr: &Name) -> Option<Value> {
        let Resolved::Value(module, name) = self.project.path(path) else { return None };
        let body = FuncRef { module, func: FuncId(0) };
        let local = self.project.func(body).locals().named(&name)?;
        let view = View::new(self.project, self.rules, self.files, body);
        let [step] = view.defs(local) else { return None };
        let value = view.value(*step)?;
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        let Some(Entry::Intrinsic(rule)) = self.rules.get(&view.callee(value)?) else { return None };
        let keyword = |a: &Arg| matches!(&a.kind, ArgKind::Keyword(k) if k == attr);
        let written = |e: &Arg| matches!(e.kind, ArgKind::Keyword(_));
        if rule.does != "configuration" || !args.iter().all(written) {
            return None;
        }
        let set = format!("{name}.{attr} =");
        let sets = |text: &str| text.match_indices(&set).any(|(at, _)| !text[at + set.len()..].starts_with('='));
        if self.files.saying(&set).any(|file| sets(self.files[file].whole())) {
            return None;
        }
        match args.iter().find(|a| keyword(a)) {
            Some(given) => match &given.value {
                Operand::Const(value) => Some(Value::Const(value.clone())),
                Operand::Local(_) | Operand::Global(_) => None,
            },
            None => default_of(&rule.args.params[rule.args.index(attr)?]).map(Value::Const),
        }
    }

    /// A function or a class by its name in the module.
    fn entry(&mut self, module: ModuleId, view: &View<'_>, operand: &Operand) -> Option<Value> {
        let name = match operand {
            Operand::Local(local) if !view.is_temp(*local) => view.local_name(*local).clone(),
            Operand::Global(name) => name.clone(),
            _ => return None,
        };
        let resolved = self.project.member(module, &name)?;
        let value = self.resolved(resolved);
        matches!(value, Value::Closure(_) | Value::Class(_) | Value::Bound(_) | Value::Path(_)).then_some(value)
    }

    /// Whether every text that has the name of a table only reads it, apart from the one statement that makes it.
    fn is_only_read(&self, module: ModuleId, name: &str) -> bool {
        let home = self.project.file(module);
        let (mut made, word) = (0, |c: char| c.is_alphanumeric() || c == '_');
        for file in self.files.saying(name) {
            let text = self.files[file].whole();
            for (at, _) in text.match_indices(name) {
                let (before, after) = (&text[..at], &text[at + name.len()..]);
                if before.ends_with(word) || after.starts_with(word) {
                    continue;
                }
                let line = &before[before.rfind('\n').map_or(0, |end| end + 1)..];
                if line.is_empty() && file == home && after.trim_start().starts_with(['=', ':']) {
                    made += 1;
                } else if !is_read(line, after) {
                    return false;
                }
            }
        }
        made == 1
    }
}

/// Whether what stands around a name reads an element of it, imports it or speaks of it.
fn is_read(line: &str, after: &str) -> bool {
    let first = line.trim_start();
    if first.starts_with("from ")
        || first.starts_with("import ")
        || line.contains('#')
        || line.ends_with(['"', '\'', '`'])
    {
        return true;
    }
    let rest = after.lines().next().unwrap_or_default();
    let element = || {
        let end = rest.find(']').map(|end| rest[end + 1..].trim_start());
        rest.starts_with('[') && end.is_some_and(|next| !next.starts_with('=') || next.starts_with("=="))
    };
    READS.iter().any(|read| rest.starts_with(read)) || line.ends_with(" in ") || element()
}
