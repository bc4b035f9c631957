//! Flags of constructors that every call in sight gives the same value. In: a finding, and the class in whose method it lies. Out: findings
//! without the worlds in which such a flag is otherwise: no object of this program is made so. Never: a class that is derived from, or that is
//! handed on as a value, or one that nothing in sight makes. Next: `made.rs`.

use super::Ties;
use super::made::{Class, Field};
use super::read::same;
use super::{flags_of, without};
use crate::infer::finding::Finding;
use crate::infer::formula::Formula;
use crate::ir::Const;
use crate::project::ClassRef;
use crate::source::Name;

impl Ties<'_> {
    /// A finding with the worlds that the objects of the program can be in, if there are any.
    pub(super) fn made_always(&self, finding: Finding) -> Option<Finding> {
        let flags = flags_of(&finding);
        let always = self.always_of(&finding, &flags);
        let denied: Vec<(&Name, bool)> = always.into_iter().map(|(flag, given)| (flag, !given)).collect();
        without(finding, &denied)
    }

    /// Those of the flags that every call of the class of a finding gives the same value.
    fn always_of<'f>(&self, finding: &Finding, flags: &'f [Name]) -> Vec<(&'f Name, bool)> {
        let Some(class) = self.class_at(finding, flags) else { return Vec::new() };
        let given = self.fields(class);
        let own: Vec<&Name> = flags.iter().filter(|flag| given.iter().any(|(name, _)| name == *flag)).collect();
        // Texts of the whole project are looked through for a flag of the constructor only.
        if own.is_empty() || !self.is_only_called(class) {
            return Vec::new();
        }
        own.into_iter().filter_map(|flag| Some((flag, self.always(class, &given, flag)?))).collect()
    }

    /// The class whose method has a finding; of a function the one class of its file that is given one of these flags.
    fn class_at(&self, finding: &Finding, flags: &[Name]) -> Option<ClassRef> {
        let at = self.project.function_at(finding.place)?;
        let func = self.project.func(at);
        if let Some(class) = func.class {
            return Some(ClassRef { module: at.module, class });
        }
        let classes = self.project.modules[at.module].ir.classes.ids();
        let given = |class: &ClassRef| self.fields(*class).iter().any(|(name, _)| flags.contains(name));
        let mut own = classes.map(|class| ClassRef { module: at.module, class }).filter(given);
        own.next().filter(|_| own.next().is_none())
    }

    /// What every call of a class gives a flag of its constructor, if that is always the same. What a flag is by default is no choice of a program.
    fn always(&self, class: ClassRef, fields: &[Field], flag: &Name) -> Option<bool> {
        let given = fields.iter().map(|(name, _)| (name.clone(), None)).collect();
        let name = &self.project.class(class).name;
        let made = Class { at: class, name, given, called: Vec::new() };
        let calls = self.calls(&made, std::slice::from_ref(flag));
        let all = |value: bool| {
            let wanted = same(flag, &Const::Bool(value));
            !calls.is_empty() && calls.iter().all(|call| matches!(call, Formula::And(said) if said.contains(&wanted)))
        };
        [true, false].into_iter().find(|value| all(*value))
    }

    /// Whether a class is called wherever the project names it, and nothing is derived from it.
    fn is_only_called(&self, class: ClassRef) -> bool {
        let name = self.project.class(class).name.as_str();
        let word = |c: char| c.is_alphanumeric() || c == '_';
        self.project.modules.iter().all(|module| {
            let text = self.files[module.file].whole();
            crate::infer::places::starts(text, name).all(|at| {
                let (before, behind) = (&text[..at], &text[at + name.len()..]);
                let other = before.ends_with(word) || behind.starts_with(word);
                let line = before.lines().next_back().unwrap_or_default().trim_start();
                let defines = line.starts_with("class ") && line.trim_end() == "class";
                let derives = line.starts_with("class ") && !defines;
                let called = behind.starts_with('(') && !derives;
                let value = line.trim_end().ends_with(['=', '(', '[', ',', ':', '{']) && !line.starts_with("def ");
                other || defines || called || !derives && !value
            })
        })
    }
}
