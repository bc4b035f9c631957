//! The conversions that a file can write: those whose functions it imports, else spmd_types. In: bindings of a module and the repair
//! texts of the rules. Out: (from, to, call) templates. Never: choosing a repair, see `repair.rs`. Next: `mod.rs`.

use crate::project::{Binding, ModuleId, Project};
use crate::rules::{CollectiveRule, Form, RuleBook};
use crate::types::{AxisType, Spmd};

/// A conversion: from, to, the call with `{x}` and `{axis}`.
pub type Template = (Spmd, Spmd, String);

/// The module whose vocabulary is the last resort.
const DEFAULT: &str = "spmd_types";

/// The conversions in the vocabulary of a module.
pub fn vocabulary(project: &Project, rules: &RuleBook, module: ModuleId) -> Vec<Template> {
    let imports = imports(project, module);
    let (mut out, mut last_resort): (Vec<Template>, Vec<Template>) = (Vec::new(), Vec::new());
    let wanted =
        [(Spmd::Invariant, Spmd::Replicate), (Spmd::Partial, Spmd::Invariant), (Spmd::Partial, Spmd::Replicate)];
    for (from, to) in wanted {
        let own = rules.collectives().find_map(|rule| {
            let prefix = prefix_in(&imports, rule)?;
            let text = call(rule, from, to)?;
            Some(format!("{prefix}{text}"))
        });
        let fallback = || {
            let alias = imports.iter().find(|(_, path)| path == DEFAULT).map_or("spmd", |(alias, _)| alias);
            rules
                .collectives()
                .filter(|r| r.form == Form::SrcDst && r.op != "redistribute" && r.name.starts_with(DEFAULT))
                .find_map(|r| call(r, from, to))
                .map(|text| text.replace("spmd.", &format!("{alias}.")))
        };
        match own {
            Some(text) => out.push((from, to, text)),
            None => last_resort.extend(fallback().map(|text| (from, to, text))),
        }
    }
    if out.is_empty() { last_resort } else { out }
}

/// Names that the module imports, with the path each stands for.
fn imports(project: &Project, module: ModuleId) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = project
        .bindings(module)
        .filter_map(|(name, binding)| match binding {
            Binding::Import { path, level, member, .. } => {
                let base = project.absolute(module, path, *level);
                let full = member.as_ref().map_or(base.clone(), |m| format!("{base}.{m}"));
                Some((name.to_string(), full))
            }
            Binding::Func(_) | Binding::Class(_) | Binding::Value => None,
        })
        .collect();
    out.sort();
    out
}

/// How the module spells a call of the rule: nothing if it imports a function of the same module by name, `alias.` if it imports the
/// module.
fn prefix_in(imports: &[(String, String)], rule: &CollectiveRule) -> Option<String> {
    // The texts of the default vocabulary carry its module's name already.
    if rule.form != Form::Result || rule.name.starts_with(DEFAULT) {
        return None;
    }
    let (package, _) = rule.name.rsplit_once('.')?;
    if package.starts_with('*') {
        return None;
    }
    for (alias, path) in imports {
        if path == package {
            return Some(format!("{alias}."));
        }
        if path.rsplit_once('.').is_some_and(|(p, member)| p == package && member != "checkpoint") {
            return Some(String::new());
        }
    }
    None
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
    fits.then(|| text.replace("{src}", &from.letter().to_string()).replace("{dst}", &to.letter().to_string()))
}
