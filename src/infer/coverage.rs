//! Every collective call and every declared sharding that the source shows, reached or not. In: the project and the rules. Out: places. Never: execution.
//! Next: `output.rs`, which says what became of each.

use crate::ir::{Block, Func, Operand, Rvalue, Stmt};
use crate::project::{ModuleId, Project, Resolved};
use crate::rules::{Entry, RuleBook};
use crate::source::Place;

/// The places of calls whose names lead to a collective.
pub fn collective_calls(project: &Project, rules: &RuleBook) -> Vec<Place> {
    calls(project, rules, |entry| matches!(entry, Entry::Collective(_)))
}

/// The places of calls that declare a sharding.
pub fn declarations(project: &Project, rules: &RuleBook) -> Vec<Place> {
    let declares = |does: &str| matches!(does, "declared-layout" | "declared-sharding");
    calls(project, rules, |entry| matches!(entry, Entry::Intrinsic(rule) if declares(&rule.does)))
}

fn calls(project: &Project, rules: &RuleBook, wanted: impl Fn(&Entry) -> bool) -> Vec<Place> {
    let mut out = Vec::new();
    for (module, m) in project.modules.iter_enumerated() {
        for func in m.ir.funcs.iter() {
            let scan = Scan { project, rules, module, func, wanted: &wanted };
            scan.block(func.body(), &mut out);
        }
    }
    out
}

struct Scan<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    module: ModuleId,
    func: &'a Func,
    wanted: &'a dyn Fn(&Entry) -> bool,
}

impl Scan<'_> {
    fn block(&self, block: &Block, out: &mut Vec<Place>) {
        for node in block {
            let is_wanted = match &node.stmt {
                Stmt::Assign { value: Rvalue::Call { callee, .. }, .. } => self.path(callee, None),
                Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => self.path(base, Some(name)),
                _ => None,
            }
            .is_some_and(|path| self.rules.get(&path).is_some_and(|entry| (self.wanted)(entry)));
            if is_wanted {
                out.push(Place { file: self.project.file(self.module), span: self.func.spans().of(node.id) });
            }
            for inner in node.stmt.blocks() {
                self.block(inner, out);
            }
        }
    }

    /// The qualified path of a name of the module, or of a member of one.
    fn path(&self, base: &Operand, member: Option<&str>) -> Option<String> {
        let Operand::Global(name) = base else { return None };
        let path = match self.project.member(self.module, name)? {
            Resolved::External(path) => path.to_string(),
            Resolved::Module(m) => self.project.name(m).to_string(),
            Resolved::Package(p) => p.to_string(),
            Resolved::Func(f) => self.project.qualified(f).to_string(),
            Resolved::Class(class) => {
                format!("{}.{}", self.project.modules[class.module].name, self.project.class(class).qualname)
            }
            Resolved::Value(..) => return None,
        };
        Some(match member {
            Some(member) => format!("{path}.{member}"),
            None => path,
        })
    }
}
