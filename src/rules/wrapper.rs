//! Wrappers of models, and functions that take the norm of gradients. In: `[[wrapper]]` and `[[gradient-norm]]` of rule files. Out:
//! [`WrapperRule`]. Never: types; execution does not look at these. Next: `infer/practice/wrapped.rs`.

use super::RuleBook;
use super::load::Loader;
use super::schema;
use crate::source::Name;
use rustc_hash::FxHashSet;

pub use super::schema::Keeps;

/// Something that sums the gradients of a model over data-parallel ranks.
#[derive(Clone, Debug)]
pub struct WrapperRule {
    pub name: Name,
    /// What a rank keeps of each parameter, and of its gradient.
    pub keeps: Keeps,
    /// It changes the model that it is given.
    pub in_place: bool,
    /// Its own method that clips by the norm over all ranks.
    pub clip: Option<Name>,
    /// The name of a choice under which parameters are kept whole after all.
    pub whole_where: Option<Name>,
    /// Its method that gives a context in which gradients are not summed.
    pub no_sync: Option<Name>,
    /// Words of files in which a method of that name is another wrapper's.
    pub namesakes: Vec<Name>,
    /// Its attribute that says whether they are, read in forward.
    pub sync_flag: Option<Name>,
    /// Its method that is told whether they are, from then on.
    pub sync_method: Option<Name>,
    /// Arguments with modules or parameters that it leaves alone.
    pub ignores: Vec<Name>,
    pub source: Name,
}

/// All wrappers, and the functions that take norms.
#[derive(Clone, Debug, Default)]
pub struct Wrappers {
    rules: Vec<WrapperRule>,
    /// The last parts of their names.
    ends: FxHashSet<Name>,
    norms: Vec<Norm>,
    scalers: Vec<LossScaler>,
}

/// A function that takes a norm.
#[derive(Clone, Debug)]
struct Norm {
    name: Name,
    of_tensors: bool,
}

/// Scalers of losses that take the gradients of a rank for whole, beside wrappers that leave it a part of them.
#[derive(Clone, Debug)]
pub struct LossScaler {
    names: Vec<Name>,
    parts: Vec<Name>,
    /// The scaler that asks all ranks.
    pub instead: Name,
    /// The name of a choice under which gradients are whole after all.
    pub whole_where: Option<Name>,
}

impl Wrappers {
    /// The wrapper with a qualified name.
    pub fn get(&self, path: &str) -> Option<&WrapperRule> {
        self.rules.iter().find(|rule| rule.name == path)
    }

    /// Whether the qualified name of a wrapper ends so.
    pub fn ends_with(&self, name: &str) -> bool {
        self.ends.contains(name)
    }

    /// Whether the function with a qualified name takes the norm of the gradients of what it is given.
    pub fn is_norm(&self, path: &str) -> bool {
        self.norms.iter().any(|norm| norm.name == path && !norm.of_tensors)
    }

    /// Whether it takes the norm of the tensors that it is given.
    pub fn is_norm_of_tensors(&self, path: &str) -> bool {
        self.norms.iter().any(|norm| norm.name == path && norm.of_tensors)
    }

    /// What scalers with a qualified name take for whole: for each kind of wrapper one.
    pub fn scalers<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a LossScaler> {
        self.scalers.iter().filter(move |scaler| scaler.names.iter().any(|name| name == path))
    }

    /// Whether a method gives a context in which gradients are not summed.
    pub fn is_no_sync(&self, method: &str) -> bool {
        self.rules.iter().any(|rule| rule.no_sync.as_deref() == Some(method))
    }

    /// Whether a function, by its text and that of its file, leaves out the sum of gradients on a variable as only a wrapped model can.
    pub fn is_shown(&self, variable: &str, text: &str, file: &str) -> bool {
        self.rules.iter().any(|rule| {
            let on_it = |call: &str| {
                let before = |(at, _): (usize, &str)| text[..at].chars().next_back();
                text.match_indices(call)
                    .any(|hit| !before(hit).is_some_and(|c| c.is_alphanumeric() || "_.".contains(c)))
            };
            let leaves_out = rule.no_sync.as_ref().is_some_and(|name| on_it(&format!("{variable}.{name}()")));
            leaves_out && !rule.namesakes.is_empty() && !rule.namesakes.iter().any(|word| file.contains(word.as_str()))
        })
    }

    /// Whether a text names such a method, or an attribute that says whether gradients are summed.
    pub fn names_no_sync(&self, text: &str) -> bool {
        let names = |name: &Option<Name>| name.as_ref().is_some_and(|n| text.contains(n.as_str()));
        self.rules.iter().any(|rule| names(&rule.no_sync) || names(&rule.sync_flag) || names(&rule.sync_method))
    }

    /// Whether an attribute says if gradients are summed.
    pub fn is_sync_flag(&self, attribute: &str) -> bool {
        self.rules.iter().any(|rule| rule.sync_flag.as_deref() == Some(attribute))
    }

    /// Whether a method is told if gradients are summed from then on.
    pub fn is_sync_method(&self, method: &str) -> bool {
        self.rules.iter().any(|rule| rule.sync_method.as_deref() == Some(method))
    }

    /// Whether a method of a wrapper clips by the norm over all ranks.
    pub fn is_own_clip(&self, method: &str) -> bool {
        self.rules.iter().any(|rule| rule.clip.as_deref() == Some(method))
    }
}

impl Loader {
    pub(super) fn add_wrapper(&mut self, w: &schema::Wrapper, source: &str) {
        let name = |text: &Option<String>| text.as_deref().map(Name::from);
        for path in &w.names {
            let rule = WrapperRule {
                name: Name::from(path.as_str()),
                keeps: w.keeps,
                in_place: w.in_place,
                clip: name(&w.clip),
                whole_where: name(&w.whole_where),
                no_sync: name(&w.no_sync),
                namesakes: w.namesakes.iter().map(|i| Name::from(i.as_str())).collect(),
                sync_flag: name(&w.sync_flag),
                sync_method: name(&w.sync_method),
                ignores: w.ignores.iter().map(|i| Name::from(i.as_str())).collect(),
                source: Name::from(w.source.as_deref().unwrap_or(source)),
            };
            let known = &mut self.book.wrappers.rules;
            known.retain(|other| other.name != rule.name);
            known.push(rule);
            self.book.wrappers.ends.extend(path.rsplit('.').next().map(Name::from));
        }
    }

    pub(super) fn add_norms(&mut self, of: &schema::GradientNorm) {
        let norm = |name: &String| Norm { name: Name::from(name.as_str()), of_tensors: of.of_tensors };
        self.book.wrappers.norms.extend(of.names.iter().map(norm));
    }

    pub(super) fn add_scaler(&mut self, of: &schema::LossScaler) {
        let names = |all: &[String]| all.iter().map(|name| Name::from(name.as_str())).collect();
        self.book.wrappers.scalers.push(LossScaler {
            names: names(&of.names),
            parts: names(&of.parts),
            instead: Name::from(of.instead.as_str()),
            whole_where: of.whole_where.as_deref().map(Name::from),
        });
    }
}

impl LossScaler {
    /// Whether the wrapper with a qualified name leaves a rank its part of the gradients.
    pub fn meets_part(&self, path: &str) -> bool {
        self.parts.iter().any(|part| part == path)
    }
}

impl RuleBook {
    /// What sums the gradients of models.
    pub fn wrappers(&self) -> &Wrappers {
        &self.wrappers
    }
}
