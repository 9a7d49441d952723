//! Walls between the modules of a crate: where a type's methods stand, how many there are, and which modules import which.
//!
//! Modules that stand side by side must not import each other in a circle, whatever is inside of them. What a module
//! and the one around it import from each other is their own affair: a folder is one house.

use super::TidyProblem;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// Methods a type may have, over all its `impl` blocks.
const METHODS_MAX: usize = 60;
/// A chain of re-exports is followed this far.
const REEXPORTS_MAX: usize = 8;

/// The name of a module from its crate downwards: `["host", "link", "conn"]`.
type Name = Vec<String>;

/// Which module imports which of those that stand beside it, and the file and line where it does so first.
type Arrows = BTreeMap<(String, String), (String, usize)>;

/// What the rules need to know of one file.
pub struct Module {
    name: Name,
    path: String,
    /// Structs, enums and unions that it defines.
    types: Vec<String>,
    /// Type, line and number of methods of each inherent `impl`.
    blocks: Vec<(String, usize, usize)>,
    /// Paths that begin in this crate, from its root, and their lines.
    paths: Vec<(Name, usize)>,
    /// Names that it hands on, and what they stand for.
    reexports: BTreeMap<String, Name>,
    /// Names that it imports.
    imports: BTreeMap<String, Name>,
}

impl Module {
    /// Reads one file of a crate's sources.
    ///
    /// Returns nothing for other files and for what is not Rust: the compiler complains of that.
    pub fn read(path: &str, text: &str) -> Option<Module> {
        let name = name_of(path)?;
        let file = syn::parse_file(text).ok()?;
        let mut module = Module {
            name,
            path: path.to_owned(),
            types: Vec::new(),
            blocks: Vec::new(),
            paths: Vec::new(),
            reexports: BTreeMap::new(),
            imports: BTreeMap::new(),
        };
        module.visit_file(&file);
        Some(module)
    }

    /// A path as it is written here, from the crate's root.
    fn absolute(&self, segments: &[String]) -> Option<Name> {
        let (first, rest) = segments.split_first()?;
        let mut name = match first.as_str() {
            "crate" => self.name[..1].to_vec(),
            "self" => self.name.clone(),
            "super" => self.name[..self.name.len() - 1].to_vec(),
            // Whether it is a module of ours shows when all are known.
            _ => return Some([self.name.as_slice(), segments].concat()),
        };
        let ups = rest.iter().take_while(|segment| *segment == "super").count();
        name.truncate(name.len().saturating_sub(ups));
        name.extend_from_slice(&rest[ups..]);
        Some(name)
    }

    fn add_use(&mut self, tree: &syn::UseTree, before: &[String], is_public: bool, line: usize) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_use(&path.tree, &with(&path.ident), is_public, line),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use(tree, before, is_public, line));
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                self.import(&last, before, is_public, line);
            }
            syn::UseTree::Name(name) => self.import(&name.ident.to_string(), &with(&name.ident), is_public, line),
            syn::UseTree::Rename(rename) => {
                self.import(&rename.rename.to_string(), &with(&rename.ident), is_public, line);
            }
            syn::UseTree::Glob(_) => self.import("*", before, is_public, line),
        }
    }

    fn import(&mut self, known_as: &str, segments: &[String], is_public: bool, line: usize) {
        let Some(name) = self.absolute(segments) else { return };
        if is_public && known_as != "*" {
            self.reexports.insert(known_as.to_owned(), name.clone());
        }
        self.imports.insert(known_as.to_owned(), name.clone());
        self.paths.push((name, line));
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_use(&item.tree, &[], is_public, line_of(item));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none()
            && segments.len() > 1
            && let Some(name) = self.absolute(&segments)
        {
            self.paths.push((name, line_of(path)));
        }
        visit::visit_path(self, path);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.types.push(item.ident.to_string());
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.types.push(item.ident.to_string());
        visit::visit_item_enum(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none()
            && let syn::Type::Path(of) = &*item.self_ty
            && let Some(last) = of.path.segments.last()
        {
            let methods = item.items.iter().filter(|item| matches!(item, syn::ImplItem::Fn(_))).count();
            self.blocks.push((last.ident.to_string(), line_of(item), methods));
        }
        visit::visit_item_impl(self, item);
    }
}

/// Holds the modules of all crates against the rules. Nobody is excused.
pub fn check(modules: &[Module]) -> Vec<TidyProblem> {
    let mut crates = BTreeMap::<&str, Vec<&Module>>::new();
    for module in modules {
        crates.entry(&module.name[0]).or_default().push(module);
    }
    let mut problems = Vec::new();
    for modules in crates.into_values() {
        let house = House { modules: modules.into_iter().map(|module| (module.name.clone(), module)).collect() };
        problems.extend(house.circles());
        problems.extend(house.methods());
    }
    problems
}

/// The modules of one crate.
struct House<'a> {
    modules: BTreeMap<Name, &'a Module>,
}

impl House<'_> {
    /// The module in which a path ends, re-exports followed; `None` outside of the crate.
    fn module_of(&self, path: &[String]) -> Option<Name> {
        let mut path = path.to_vec();
        for _ in 0..REEXPORTS_MAX {
            let module = (1..=path.len()).rev().find_map(|len| self.modules.get(&path[..len]))?;
            let len = module.name.len();
            match path.get(len).and_then(|next| module.reexports.get(next)) {
                // A child of that name goes before: it was found already if there is one.
                Some(target) if *target != path => path = [target.as_slice(), &path[len + 1..]].concat(),
                _ => return (len > 1 || path.len() > 1).then(|| module.name.clone()),
            }
        }
        None
    }

    /// Where a type is defined whose methods stand in this module.
    fn home_of(&self, module: &Module, of: &str) -> Option<Name> {
        let defines =
            |name: &Name| self.modules.get(name).is_some_and(|module| module.types.iter().any(|known| known == of));
        if defines(&module.name) {
            return Some(module.name.clone());
        }
        let imported = module.imports.get(of).and_then(|path| self.module_of(path)).filter(|name| defines(name));
        imported.or_else(|| {
            let mut homes = self.modules.keys().filter(|name| defines(name));
            homes.next().filter(|_| homes.next().is_none()).cloned()
        })
    }

    fn methods(&self) -> Vec<TidyProblem> {
        let mut problems = Vec::new();
        let mut counts = BTreeMap::<(Name, &str), usize>::new();
        for module in self.modules.values() {
            for (of, line, methods) in &module.blocks {
                let Some(home) = self.home_of(module, of) else { continue };
                if home.len() == 1 && module.name.len() > 1 || !module.name.starts_with(&home) {
                    let sentence = format!("methods of {of} belong into {}", self.modules[&home].path);
                    problems.push(TidyProblem { path: module.path.clone(), line: *line, sentence });
                }
                *counts.entry((home, of)).or_default() += methods;
            }
        }
        for ((home, of), methods) in counts {
            if methods > METHODS_MAX {
                let sentence = format!("{of} has {methods} methods; the most is {METHODS_MAX}");
                problems.push(TidyProblem { path: self.modules[&home].path.clone(), line: 0, sentence });
            }
        }
        problems
    }

    /// The arrows by the module around them.
    fn arrows(&self) -> BTreeMap<Name, Arrows> {
        let mut levels = BTreeMap::<Name, Arrows>::new();
        for from in self.modules.values() {
            for (path, line) in &from.paths {
                let Some(to) = self.module_of(path) else { continue };
                let common = from.name.iter().zip(&to).take_while(|(a, b)| a == b).count();
                let (Some(here), Some(there)) = (from.name.get(common), to.get(common)) else { continue };
                let level = levels.entry(to[..common].to_vec()).or_default();
                level.entry((here.clone(), there.clone())).or_insert((from.path.clone(), *line));
            }
        }
        levels
    }

    fn circles(&self) -> Vec<TidyProblem> {
        let mut problems = Vec::new();
        for (around, arrows) in self.arrows() {
            for circle in circles_of(arrows.keys()) {
                let next = |at: &String| circle.iter().find(|to| arrows.contains_key(&(at.clone(), (*to).clone())));
                let first = &circle[0];
                let second = next(first).unwrap_or(first);
                let (path, line) = arrows[&(first.clone(), second.clone())].clone();
                let inside = arrows.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
                let ties: Vec<String> =
                    inside.map(|((from, to), (path, line))| format!("{from} imports {to} ({path}:{line})")).collect();
                let sentence =
                    format!("modules of {} import each other in a circle: {}", around.join("::"), ties.join(", "));
                problems.push(TidyProblem { path, line, sentence });
            }
        }
        problems
    }
}

/// Sets of more than one that can all be reached from one another.
fn circles_of<'a>(arrows: impl Iterator<Item = &'a (String, String)>) -> Vec<Vec<String>> {
    let mut reached = BTreeMap::<&String, BTreeSet<&String>>::new();
    for (from, to) in arrows {
        reached.entry(from).or_default().insert(to);
    }
    loop {
        let mut grew = false;
        for from in reached.keys().copied().collect::<Vec<_>>() {
            let further: BTreeSet<&String> =
                reached[from].iter().filter_map(|to| reached.get(to)).flatten().copied().collect();
            let known = reached.entry(from).or_default();
            let before = known.len();
            known.extend(further);
            grew |= known.len() > before;
        }
        if !grew {
            break;
        }
    }
    let mut circles = BTreeSet::new();
    for (from, all) in &reached {
        let is_mutual = |to: &&&String| reached.get(**to).is_some_and(|back| back.contains(from));
        let circle: BTreeSet<String> = all.iter().filter(is_mutual).map(|to| (*to).clone()).collect();
        if circle.len() > 1 {
            circles.insert(circle.into_iter().collect::<Vec<_>>());
        }
    }
    circles.into_iter().collect()
}

/// The module that a file of a crate's sources is.
fn name_of(path: &str) -> Option<Name> {
    let (package, inside) = match path.strip_prefix("crates/") {
        Some(rest) => rest.split_once("/src/")?,
        None => ("xtask", path.strip_prefix("xtask/src/")?),
    };
    let mut name = vec![package.to_owned()];
    name.extend(inside.strip_suffix(".rs")?.split('/').map(str::to_owned));
    let is_root = name.len() == 2 && (name[1] == "lib" || name[1] == "main" && package == "xtask");
    if is_root || name.last().is_some_and(|last| last == "mod") {
        name.pop();
    }
    Some(name)
}

fn line_of(node: &impl syn::spanned::Spanned) -> usize {
    node.span().start().line
}

/// Only tests are built from it.
fn is_test(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn house(files: &[(&str, &str)]) -> Vec<Module> {
        files.iter().map(|(path, text)| Module::read(&format!("crates/a/src/{path}"), text).unwrap()).collect()
    }

    fn sentences(files: &[(&str, &str)]) -> Vec<String> {
        check(&house(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn methods_stand_in_the_module_of_their_type() {
        let sound = [("b.rs", "pub struct B;"), ("b/c.rs", "use super::B;\nimpl B { fn f() {} }")];
        assert_eq!(sentences(&sound), Vec::<String>::new());
        let spread = [("b.rs", "pub struct B;"), ("d.rs", "use crate::b::B;\nimpl B { fn f() {} }")];
        assert_eq!(sentences(&spread), ["crates/a/src/d.rs:2: methods of B belong into crates/a/src/b.rs"]);
        let of_root = [("lib.rs", "pub struct B;"), ("d.rs", "impl crate::B { fn f() {} }")];
        assert_eq!(sentences(&of_root).len(), 1);
    }

    #[test]
    fn methods_are_counted_over_all_files() {
        let block = |methods: usize| format!("use crate::b::B;\nimpl B {{ {} }}", "fn f() {}".repeat(methods));
        let of = |more: usize| {
            sentences(&[("b.rs", "pub struct B;"), ("b/c.rs", &block(30)), ("b/d.rs", &block(30 + more))])
        };
        assert_eq!(of(0), Vec::<String>::new());
        assert_eq!(of(1), ["crates/a/src/b.rs: B has 61 methods; the most is 60"]);
    }

    #[test]
    fn circles_are_found_at_every_depth_and_through_re_exports() {
        let by_use = [("b.rs", "use crate::c::C;"), ("c.rs", "pub struct C; fn f() { crate::b::g() }")];
        assert_eq!(sentences(&by_use).len(), 1);
        let inside =
            [("b.rs", "mod c; mod d;"), ("b/c.rs", "use super::d::D;"), ("b/d.rs", "pub struct D; use crate::b::c;")];
        assert!(sentences(&inside)[0].contains("modules of a::b import each other"));
        let handed_on = [
            ("lib.rs", "pub use c::C;"),
            ("b.rs", "pub struct B; use crate::C;"),
            ("c.rs", "pub struct C(crate::b::B);"),
        ];
        assert_eq!(sentences(&handed_on).len(), 1);
    }

    #[test]
    fn a_folder_is_one_house_and_tests_know_everybody() {
        let parent = [("b.rs", "mod c; use c::C; pub struct B;"), ("b/c.rs", "pub struct C(super::B);")];
        assert_eq!(sentences(&parent), Vec::<String>::new());
        let tests =
            [("b.rs", "use crate::c::C;"), ("c.rs", "pub struct C;\n#[cfg(test)]\nmod tests { use crate::b::x; }")];
        assert_eq!(sentences(&tests), Vec::<String>::new());
    }
}
