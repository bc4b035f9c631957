//! The conversions that a file can write: those whose functions it imports, else spmd_types. In: bindings of a module and the repair
//! texts of the rules. Out: [`Template`]s. Never: choosing a repair, see `repair.rs`. Next: `mod.rs`.

use crate::project::{Binding, ModuleId, Project};
use crate::rules::{CollectiveRule, Form, RuleBook};
use crate::types::{AxisType, Spmd};

/// A conversion that a file can write.
#[derive(Clone, Debug)]
pub struct Template {
    pub from: Spmd,
    pub to: Spmd,
    /// The call with `{x}` and `{axis}`.
    pub text: String,
    /// Module and name of its function, where only others of that module are imported.
    pub import: Option<(String, String)>,
    /// Whether the names in it are bound, or can be by an import.
    pub is_bound: bool,
}

/// The module whose vocabulary is the last resort.
const DEFAULT: &str = "spmd_types";

/// The conversions in the vocabulary of a module.
pub fn vocabulary(project: &Project, rules: &RuleBook, module: ModuleId) -> Vec<Template> {
    let imports = imports(project, module);
    let (mut out, mut last_resort): (Vec<Template>, Vec<Template>) = (Vec::new(), Vec::new());
    let wanted =
        [(Spmd::Invariant, Spmd::Replicate), (Spmd::Partial, Spmd::Invariant), (Spmd::Partial, Spmd::Replicate)];
    for (from, to) in wanted {
        let templates = || {
            rules.collectives().filter_map(|rule| {
                let spelling = spelling(&imports, rule)?;
                let text = spelling.text(&call(rule, from, to)?);
                Some(Template { from, to, text, import: spelling.import, is_bound: true })
            })
        };
        // A function that is bound already needs no import.
        let own = templates().find(|t| t.import.is_none()).or_else(|| templates().next());
        let fallback = || {
            let alias = imports.iter().find(|(_, path)| path == DEFAULT).map(|(alias, _)| alias.as_str());
            rules
                .collectives()
                .filter(|r| r.form == Form::SrcDst && r.op != "redistribute" && r.name.starts_with(DEFAULT))
                .find_map(|r| call(r, from, to))
                .map(|text| {
                    let text = text.replace("spmd.", &format!("{}.", alias.unwrap_or("spmd")));
                    Template { from, to, text, import: None, is_bound: alias.is_some() }
                })
        };
        match own {
            Some(template) => out.push(template),
            None => last_resort.extend(fallback()),
        }
    }
    if out.is_empty() { last_resort } else { out }
}

/// How a module writes a call of a function.
pub struct Spelling {
    /// What is called.
    pub callee: String,
    /// Module and name, where the function has to be imported first.
    pub import: Option<(String, String)>,
}

impl Spelling {
    /// The call of a rule with this callee.
    fn text(&self, call: &str) -> String {
        match call.split_once('(') {
            Some((_, arguments)) => format!("{}({arguments}", self.callee),
            None => call.to_string(),
        }
    }
}

/// How the module spells a function, by the name that its rules end with: as it is bound already, or by an import.
pub fn spelled(project: &Project, rules: &RuleBook, module: ModuleId, name: &str) -> Option<Spelling> {
    let imports = imports(project, module);
    let named = |rule: &&CollectiveRule| rule.name.rsplit('.').next() == Some(name);
    let spellings = || rules.collectives().map(|r| &**r).filter(named).filter_map(|rule| spelling(&imports, rule));
    spellings().find(|s| s.import.is_none()).or_else(|| spellings().next())
}

/// Names that the module imports, with the path each stands for.
pub(super) fn imports(project: &Project, module: ModuleId) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = project
        .bindings(module)
        .filter_map(|(name, binding)| match binding {
            Binding::Import(import) => {
                let base = project.absolute(module, &import.path, import.level);
                let full = import.member.as_ref().map_or(base.clone(), |m| format!("{base}.{m}"));
                Some((name.to_string(), full))
            }
            Binding::Func(_) | Binding::Class(_) | Binding::Value => None,
        })
        .collect();
    out.sort();
    out
}

/// By its own name or alias if it is imported, as an attribute of its module if that is, or by an import beside those of its kin.
fn spelling(imports: &[(String, String)], rule: &CollectiveRule) -> Option<Spelling> {
    // The texts of the default vocabulary carry its module's name already.
    if rule.form != Form::Result || rule.name.starts_with(DEFAULT) || rule.name.starts_with('*') {
        return None;
    }
    let (path, method) = match rule.name.strip_suffix(".apply") {
        Some(class) => (class, ".apply"),
        None => (rule.name.as_str(), ""),
    };
    let (package, name) = path.rsplit_once('.')?;
    let with = |head: &str| format!("{head}{method}");
    if let Some((alias, _)) = imports.iter().find(|(_, bound)| bound == path) {
        return Some(Spelling { callee: with(alias), import: None });
    }
    if let Some((alias, _)) = imports.iter().find(|(_, bound)| bound == package) {
        return Some(Spelling { callee: with(&format!("{alias}.{name}")), import: None });
    }
    let is_kin = |bound: &str| bound.rsplit_once('.').is_some_and(|(p, member)| p == package && member != "checkpoint");
    imports
        .iter()
        .any(|(_, bound)| is_kin(bound))
        .then(|| Spelling { callee: with(name), import: Some((package.to_string(), name.to_string())) })
}

/// The call that converts, if the rule can.
fn call(rule: &CollectiveRule, from: Spmd, to: Spmd) -> Option<String> {
    let text = rule.repair.as_ref()?;
    let gives = |set: AxisType| set == AxisType::one(to);
    let fits = match rule.form {
        Form::Result => rule.transitions.iter().any(|(c, t)| {
            c.is_none()
                && t.source.set.contains(from)
                && gives(t.result.set)
                && t.result.shard.is_none()
                && t.source.shard.is_none()
        }),
        Form::SrcDst => rule.legal.iter().any(|t| t.source.set == AxisType::one(from) && gives(t.result.set)),
        Form::InPlace | Form::IntoOutput | Form::IntoList => false,
    };
    fits.then(|| text.as_str().replace("{src}", &from.letter().to_string()).replace("{dst}", &to.letter().to_string()))
}
