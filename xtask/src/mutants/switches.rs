//! All mutants of a sample in one build, each behind a switch of its own that is read at run time.
//!
//! Around the change of a mutant stands a piece of code that is whole with the change and without it: an expression, the body of a
//! function, the pattern or the guard of a match arm. `a + b` becomes `(if on(7) { a - b } else { a + b })`. A change has no switch inside,
//! since no two are on at the same time. What must be constant cannot be switched, and is left to be built for itself.

use anyhow::{Context, Result};
use proc_macro2::Span;
use std::cmp::Reverse;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, Block, Expr, ExprBinary, Pat, Signature};

/// Replaces a range of a file's bytes.
#[derive(Clone, Debug)]
pub struct TextChange {
    /// What switches it on.
    pub id: usize,
    pub range: Range<usize>,
    pub replacement: String,
}

/// A file with switches.
pub struct Switched {
    pub text: String,
    /// Where each one's code is in that text.
    pub ranges: Vec<(usize, Range<usize>)>,
}

impl Switched {
    /// A file's text with a switch for each change that can have one.
    ///
    /// # Errors
    /// When the file is no Rust.
    pub fn new(text: &str, changes: &[TextChange]) -> Result<Switched> {
        let file = syn::parse_file(text).context("not understood as Rust")?;
        let mut finder = Finder { text, changes, wraps: Vec::new(), operators: Operators::None };
        finder.visit_file(&file);
        Ok(render(text, finder.wraps))
    }

    /// Whose code the compiler complains of: the innermost at that place.
    pub fn at(&self, location: &Range<usize>) -> Option<usize> {
        let holds = |range: &Range<usize>| range.start <= location.start && location.end <= range.end;
        let around = self.ranges.iter().filter(|(_, range)| holds(range));
        around.min_by_key(|(_, range)| range.len()).map(|(id, _)| *id)
    }
}

/// The engine's module that knows which switch is on, and where its library names it. It may use `std`: it is in no product.
pub const MODULE_FILE: &str = "crates/engine/src/mutant_switch.rs";
pub const LIBRARY_FILE: &str = "crates/engine/src/lib.rs";
pub const MODULE_NAMED: &str = "\nmod mutant_switch;\n";
/// Holds the number of the mutant to be switched on.
pub const VARIABLE: &str = "ENGINE_MUTANT";
pub const MODULE: &str = "\
extern crate std;

static CHOSEN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();

#[inline]
pub fn on(id: usize) -> bool {
    let chosen = || std::env::var(\"ENGINE_MUTANT\").map_or(usize::MAX, |id| id.parse().expect(\"a number\"));
    *CHOSEN.get_or_init(chosen) == id
}
";

/// What is written before and behind a range of the file.
struct Wrap {
    id: usize,
    range: Range<usize>,
    before: String,
    behind: String,
}

/// Writes the wraps into the text. Each is inside another one, or beside it.
fn render(text: &str, mut wraps: Vec<Wrap>) -> Switched {
    wraps.sort_by_key(|wrap| (wrap.range.start, Reverse(wrap.range.end)));
    let mut switched = Switched { text: String::new(), ranges: Vec::new() };
    let mut open: Vec<(Wrap, usize)> = Vec::new();
    let mut at = 0;
    for wrap in wraps {
        while let Some((inner, begin)) = open.pop_if(|(inner, _)| inner.range.end <= wrap.range.start) {
            switched.close(&inner, begin, &text[at..inner.range.end]);
            at = inner.range.end;
        }
        switched.text.push_str(&text[at..wrap.range.start]);
        at = wrap.range.start;
        let begin = switched.text.len();
        switched.text.push_str(&wrap.before);
        open.push((wrap, begin));
    }
    while let Some((inner, begin)) = open.pop() {
        switched.close(&inner, begin, &text[at..inner.range.end]);
        at = inner.range.end;
    }
    switched.text.push_str(&text[at..]);
    switched
}

impl Switched {
    fn close(&mut self, wrap: &Wrap, begin: usize, rest: &str) {
        self.text.push_str(rest);
        self.text.push_str(&wrap.behind);
        self.ranges.push((wrap.id, begin..self.text.len()));
    }
}

/// Of which operators an expression is an operand.
#[derive(Clone)]
enum Operators {
    None,
    /// The outermost one's range: operators in it may bind anew when one of them is changed.
    Within(Range<usize>),
    /// `a && let b = c`, which is no expression of its own.
    LetChain,
}

struct Finder<'a> {
    text: &'a str,
    changes: &'a [TextChange],
    wraps: Vec<Wrap>,
    operators: Operators,
}

fn on(id: usize) -> String {
    format!("crate::mutant_switch::on({id})")
}

fn range(span: Span) -> Range<usize> {
    span.byte_range()
}

impl Finder<'_> {
    fn changes_of(&self, range: &Range<usize>) -> Vec<TextChange> {
        self.changes.iter().filter(|change| change.range == *range).cloned().collect()
    }

    fn wrap(&mut self, id: usize, range: Range<usize>, before: String, behind: String) {
        self.wraps.push(Wrap { id, range, before, behind });
    }

    /// The expression `whole` as it is, or as the change has it.
    fn switch(&mut self, change: &TextChange, whole: &Range<usize>) {
        let (before, behind) = (whole.start..change.range.start, change.range.end..whole.end);
        let changed = format!("{}{}{}", &self.text[before], change.replacement, &self.text[behind]);
        if syn::parse_str::<Expr>(&changed).is_ok() {
            let before = format!("(if {} {{ {changed} }} else {{ ", on(change.id));
            self.wrap(change.id, whole.clone(), before, " })".to_owned());
        }
    }

    fn binary(&mut self, binary: &ExprBinary, around: &Operators) {
        let is_and = matches!(binary.op, syn::BinOp::And(_));
        let operators = match around {
            Operators::LetChain if is_and => Operators::LetChain,
            _ if has_let(binary) => Operators::LetChain,
            Operators::Within(whole) => Operators::Within(whole.clone()),
            _ => Operators::Within(range(binary.span())),
        };
        if let Operators::Within(whole) = &operators {
            for change in self.changes_of(&range(binary.op.span())) {
                self.switch(&change, whole);
            }
        }
        for operand in [&binary.left, &binary.right] {
            self.operators = operators.clone();
            self.visit_expr(operand);
        }
    }

    /// A function returns at once what its body is replaced by.
    fn function(&mut self, signature: &Signature, block: &Block) {
        if let (Some(first), Some(last), None) = (block.stmts.first(), block.stmts.last(), signature.constness) {
            let body = range(first.span()).start..range(last.span()).end;
            for TextChange { id, replacement, .. } in self.changes_of(&body) {
                let before = format!("if {} {{ return {replacement}; }} ", on(id));
                self.wrap(id, body.clone(), before, String::new());
            }
        }
    }
}

fn has_let(binary: &ExprBinary) -> bool {
    [&binary.left, &binary.right].into_iter().any(|operand| match &**operand {
        Expr::Let(_) => true,
        Expr::Binary(inner) => has_let(inner),
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        let around = std::mem::replace(&mut self.operators, Operators::None);
        match expr {
            Expr::Binary(binary) => return self.binary(binary, &around),
            Expr::Unary(unary) => {
                for change in self.changes_of(&range(unary.op.span())) {
                    self.switch(&change, &range(expr.span()));
                }
            }
            Expr::Struct(literal) => {
                for pair in literal.fields.pairs() {
                    let mut field = range(pair.value().span());
                    field.end = pair.punct().map_or(field.end, |comma| range(comma.span()).end);
                    for change in self.changes_of(&field) {
                        self.switch(&change, &range(expr.span()));
                    }
                }
            }
            Expr::Match(matched) => {
                // An arm too few is complained of at what is matched.
                for arm in &matched.arms {
                    for TextChange { id, .. } in self.changes_of(&range(arm.span())) {
                        self.wrap(id, range(expr.span()), String::new(), String::new());
                    }
                }
            }
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        let guard = if let Pat::Guard(pattern) = &arm.pat { Some(range(pattern.guard.span())) } else { None };
        for TextChange { id, .. } in self.changes_of(&range(arm.span())) {
            match &guard {
                Some(guard) => self.wrap(id, guard.clone(), format!("!{} && (", on(id)), ")".to_owned()),
                None => self.wrap(id, range(arm.pat.span()), String::new(), format!(" if !{}", on(id))),
            }
        }
        if let Some(guard) = guard {
            for change in self.changes_of(&guard) {
                self.switch(&change, &guard);
            }
        }
        visit::visit_arm(self, arm);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        if item.sig.constness.is_none() {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        if item.sig.constness.is_none() {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    // What must be constant: it cannot ask at run time.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `text` with a switch for the change of its `from`, without line ends and what `on` is a part of.
    fn switched(text: &str, from: &str, to: &str) -> Option<String> {
        let start = text.find(from).expect("it is in the text");
        let change = TextChange { id: 7, range: start..start + from.len(), replacement: to.to_owned() };
        let switched = Switched::new(text, &[change]).expect("it is Rust");
        syn::parse_file(&switched.text).expect("it is still Rust");
        (!switched.ranges.is_empty()).then(|| switched.text.replace("crate::mutant_switch::", ""))
    }

    #[track_caller]
    fn check(text: &str, from: &str, to: &str, wanted: &str) {
        assert_eq!(switched(text, from, to).as_deref(), Some(wanted));
    }

    #[test]
    fn an_operator_is_switched_with_its_operands() {
        check("fn f() { x += 1; }", "+=", "-=", "fn f() { (if on(7) { x -= 1 } else { x += 1 }); }");
        check("fn f() { if é < y { } }", "<", "<=", "fn f() { if (if on(7) { é <= y } else { é < y }) { } }");
        let (text, wanted) = ("fn f() { g(!a.b()) }", "fn f() { g((if on(7) {  a.b() } else { !a.b() })) }");
        check(text, "!", " ", wanted);
    }

    /// `a + b - c` with `*` for `+` is not `(a * b) - c` by luck alone: operators bind as they would in the changed text.
    #[test]
    fn operators_bind_anew() {
        let wanted = "fn f() { (if on(7) { a - b * c == d } else { a - b + c == d }) }";
        check("fn f() { a - b + c == d }", "+", "*", wanted);
        check("fn f() { a - (b + c) }", "+", "*", "fn f() { a - ((if on(7) { b * c } else { b + c })) }");
    }

    #[test]
    fn a_function_returns_at_once() {
        check(
            "fn f() -> u8 { let a = 1; a }",
            "let a = 1; a",
            "0",
            "fn f() -> u8 { if on(7) { return 0; } let a = 1; a }",
        );
    }

    #[test]
    fn an_arm_without_a_chance_is_no_arm() {
        let wanted = "fn f() { match a { 1 | 2 if !on(7) => b, _ => c } }";
        check("fn f() { match a { 1 | 2 => b, _ => c } }", "1 | 2 => b,", "", wanted);
        let wanted = "fn f() { match a { 1 if !on(7) && (b || c) => (), _ => c } }";
        check("fn f() { match a { 1 if b || c => (), _ => c } }", "1 if b || c => (),", "", wanted);
    }

    #[test]
    fn a_guard_is_an_expression() {
        let wanted = "fn f() { match a { x if (if on(7) { true } else { x.b() }) => c, _ => d } }";
        check("fn f() { match a { x if x.b() => c, _ => d } }", "x.b()", "true", wanted);
    }

    #[test]
    fn a_field_is_left_out_with_its_comma() {
        let wanted = "fn f() { (if on(7) { S {  ..b } } else { S { a: 1, ..b } }) }";
        check("fn f() { S { a: 1, ..b } }", "a: 1,", "", wanted);
    }

    #[test]
    fn what_must_be_constant_is_left() {
        for text in ["const fn f() -> u8 { 1 + 2 }", "const A: u8 = 1 + 2;", "fn f() -> [u8; 1 + 2] { g([0; 1 + 2]) }"]
        {
            assert_eq!(switched(text, "+", "-"), None, "{text}");
        }
        assert_eq!(switched("fn f() { [0; 1 + 2] }", "+", "-"), None);
    }

    /// `a || let b = c` is not Rust, nor is `a || b && let c = d`.
    #[test]
    fn a_chain_of_lets_is_left() {
        let text = "fn f() { if a && b == 1 && let Some(c) = d { } }";
        assert_eq!(switched(text, "&&", "||"), None);
        let wanted = "fn f() { if a && (if on(7) { b != 1 } else { b == 1 }) && let Some(c) = d { } }";
        check(text, "==", "!=", wanted);
    }

    #[test]
    fn switches_stand_in_one_another() {
        let text = "fn f(a: u8) -> bool { a + 1 == 2 }";
        let change = |id, from: &str, to: &str| {
            let start = text.rfind(from).expect("it is there");
            TextChange { id, range: start..start + from.len(), replacement: to.to_owned() }
        };
        let changes = [change(1, "a + 1 == 2", "true"), change(2, "+", "-"), change(3, "==", "!=")];
        let switched = Switched::new(text, &changes).expect("it is Rust");
        let wanted = "fn f(a: u8) -> bool { if on(1) { return true; } (if on(3) { a + 1 != 2 } else { \
                      (if on(2) { a - 1 == 2 } else { a + 1 == 2 }) }) }";
        assert_eq!(switched.text.replace("crate::mutant_switch::", ""), wanted);
        let inner = switched.text.find("!=").expect("it is there");
        assert_eq!(switched.at(&(inner..inner + 2)), Some(3));
        let first = switched.text.find("true").expect("it is there");
        assert_eq!(switched.at(&(first..first + 4)), Some(1));
        assert_eq!(switched.at(&(0..1)), None);
    }
    #[test]
    fn an_arm_too_few_is_found_at_what_is_matched() {
        let text = "fn f() { match abc { 1 => (), _ => () } }";
        let start = text.find("1 =>").expect("it is there");
        let change = TextChange { id: 1, range: start..start + "1 => (),".len(), replacement: String::new() };
        let switched = Switched::new(text, &[change]).expect("it is Rust");
        let location = switched.text.find("abc").expect("it is there");
        assert_eq!(switched.at(&(location..location + 3)), Some(1));
    }
}
