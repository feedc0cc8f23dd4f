use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Path, Token, parenthesized};

use crate::check::Errors;
use crate::template::Template;

/// The arguments as they were given, each at most once, none of them required yet.
#[derive(Default)]
pub(crate) struct Args {
    /// Every argument that was named, well formed or not: a malformed one is not missing as well.
    named: Vec<Ident>,
    guard: Option<Expr>,
    operation: Option<LitStr>,
    key: Option<Text>,
    scope: Option<Scope>,
    fingerprint: Option<Vec<Expr>>,
    retention: Option<Expr>,
    lease: Option<Expr>,
    failure: Option<Expr>,
    replay_errors: bool,
    library: Option<Path>,
}

/// The arguments of an attribute that can be expanded.
pub(crate) struct Complete {
    pub(crate) guard: Expr,
    pub(crate) operation: LitStr,
    pub(crate) key: Text,
    pub(crate) scope: Scope,
    pub(crate) fingerprint: Option<Vec<Expr>>,
    pub(crate) retention: Option<Expr>,
    pub(crate) lease: Option<Expr>,
    pub(crate) failure: Option<Expr>,
    pub(crate) replay_errors: bool,
    pub(crate) library: Option<Path>,
}

/// A value that becomes text.
pub(crate) enum Text {
    Template(Template),
    Expr(Expr),
}

/// Whose key it is.
pub(crate) enum Scope {
    Unscoped,
    Of(Text),
}

const GUARD: &str =
    "`guard = <expression>`: a `Guard`, or a reference or smart pointer to one, such as `guard = self.guard`";
const OPERATION: &str = "`operation = \"…\"`: a name that never changes, such as `operation = \"payments.create\"`";
const KEY: &str = "`key = …`: a format string such as `key = \"{order.id}\"`, or an expression over the arguments";
const SCOPE: &str = "`scope = …`: a format string such as `scope = \"{user.tenant}\"`, or an expression over the arguments; or \
                     `unscoped`";
const UNSCOPED: &str = "`unscoped`, without a value";
const FINGERPRINT: &str = "`fingerprint(…)`: arguments or their fields, such as `fingerprint(order.amount, currency)`";
const RETENTION: &str = "`retention = <Duration>`, such as `retention = Duration::from_secs(86_400)`";
const LEASE: &str = "`lease = <Duration>`, such as `lease = Duration::from_secs(30)`";
const FAILURE: &str = "`failure = <path>`: a function `fn(&E) -> Failure`, by its path, or a closure";
const ERRORS: &str = "`errors = replay`";
const CRATE: &str = "`crate = ::path`";
const ALL: &str =
    "`guard`, `operation`, `key`, `scope` or `unscoped`, `fingerprint`, `retention`, `lease`, `failure`, `errors`";

impl Args {
    /// Reads all arguments. One that is malformed is reported and passed over, up to the next comma.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = args.parse_one(input) {
                    errors.push(error);
                    skip_to_comma(input)?;
                }
                if !input.is_empty() && !input.peek(Token![,]) {
                    errors.at(input.span(), "expected a comma between arguments");
                    if !input.peek(Ident::peek_any) {
                        skip_to_comma(input)?;
                    }
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        if let Err(error) = parser.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    fn parse_one(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let Ok(name) = input.call(Ident::parse_any) else {
            return Err(input.error(format!("expected the name of an argument: {ALL}")));
        };
        let text = name.to_string();
        if self.named.contains(&name) {
            return Err(syn::Error::new(name.span(), format!("`{text}` is given twice")));
        }
        self.named.push(name.clone());
        match text.as_str() {
            "guard" => self.guard = Some(value(&name, GUARD, input)?),
            "operation" => self.operation = Some(operation(value(&name, OPERATION, input)?)?),
            "key" => self.key = Some(key(value(&name, KEY, input)?)?),
            "scope" => self.set_scope(&name, Scope::Of(scope(value(&name, SCOPE, input)?)?))?,
            "unscoped" if input.is_empty() || input.peek(Token![,]) => self.set_scope(&name, Scope::Unscoped)?,
            "unscoped" => return Err(expected(&name, UNSCOPED)),
            "fingerprint" => self.fingerprint = Some(fingerprint(&name, input)?),
            "retention" => self.retention = Some(value(&name, RETENTION, input)?),
            "lease" => self.lease = Some(value(&name, LEASE, input)?),
            "failure" => self.failure = Some(failure(value(&name, FAILURE, input)?)?),
            "errors" => self.replay_errors = replay(value(&name, ERRORS, input)?)?,
            "crate" => self.library = Some(library(value(&name, CRATE, input)?)?),
            _ => {
                let hint = similar(&text).map(|known| format!(" Did you mean `{known}`?")).unwrap_or_default();
                return Err(syn::Error::new(name.span(), format!("unknown argument `{text}`.{hint} There are {ALL}")));
            }
        }
        Ok(())
    }

    fn set_scope(&mut self, name: &Ident, scope: Scope) -> syn::Result<()> {
        if self.scope.replace(scope).is_some() {
            return Err(syn::Error::new(name.span(), "either `scope = …` or `unscoped`, not both"));
        }
        Ok(())
    }

    /// The same with everything that is required, or at least one error.
    pub(crate) fn complete(self, errors: &mut Errors) -> Option<Complete> {
        let named = |names: &[&str]| self.named.iter().any(|named| names.iter().any(|name| named == name));
        for (names, form) in
            [(&["guard"][..], GUARD), (&["operation"], OPERATION), (&["key"], KEY), (&["scope", "unscoped"], SCOPE)]
        {
            if !named(names) {
                errors.at(Span::call_site(), format!("missing {form}"));
            }
        }
        if self.replay_errors && !named(&["failure"]) {
            let errors_argument = self.named.iter().find(|named| *named == "errors");
            errors.on(
                errors_argument,
                "`errors = replay` needs `failure = <path>`: without it the outcome of every `Err` is unknown and none is stored",
            );
        }
        Some(Complete {
            guard: self.guard?,
            operation: self.operation?,
            key: self.key?,
            scope: self.scope?,
            fingerprint: self.fingerprint,
            retention: self.retention,
            lease: self.lease,
            failure: self.failure,
            replay_errors: self.replay_errors,
            library: self.library,
        })
    }
}

/// What stands behind `name =`.
fn value(name: &Ident, form: &str, input: ParseStream<'_>) -> syn::Result<Expr> {
    if input.parse::<Token![=]>().is_err() || input.is_empty() || input.peek(Token![,]) {
        return Err(expected(name, form));
    }
    let start = input.span();
    input.parse().map_err(|_| syn::Error::new(start, format!("expected {form}")))
}

fn expected(tokens: impl ToTokens, form: &str) -> syn::Error {
    syn::Error::new_spanned(tokens, format!("expected {form}"))
}

fn operation(value: Expr) -> syn::Result<LitStr> {
    let Some(name) = string(&value) else { return Err(expected(value, OPERATION)) };
    let text = name.value();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(allowed) {
        return Err(syn::Error::new(
            name.span(),
            "an operation is named by 1 to 64 of the characters A-Z a-z 0-9 . _ - /",
        ));
    }
    Ok(name.clone())
}

fn key(value: Expr) -> syn::Result<Text> {
    let text = text(value)?;
    let constant = match &text {
        Text::Template(template) if template.values() == 0 => template.literal().to_token_stream(),
        Text::Expr(literal @ Expr::Lit(_)) => literal.to_token_stream(),
        Text::Template(_) | Text::Expr(_) => return Ok(text),
    };
    Err(syn::Error::new_spanned(
        constant,
        "this key is the same for every call: name what tells two calls apart, such as `key = \"{order.id}\"`",
    ))
}

fn scope(value: Expr) -> syn::Result<Text> {
    let text = text(value)?;
    match &text {
        Text::Template(template) if template.literal().value().is_empty() => Err(syn::Error::new(
            template.literal().span(),
            "an empty scope; to let all callers share their keys, say `unscoped`",
        )),
        Text::Template(template) if template.values() > 1 => Err(syn::Error::new(
            template.literal().span(),
            "a scope takes in one value, because two could run into each other; to join more, give an expression",
        )),
        Text::Template(_) | Text::Expr(_) => Ok(text),
    }
}

fn text(value: Expr) -> syn::Result<Text> {
    match string(&value) {
        Some(literal) => Template::parse(literal.clone()).map(Text::Template),
        None => Ok(Text::Expr(value)),
    }
}

/// The literal, also where a macro has passed it on as a fragment.
fn string(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => Some(literal),
        Expr::Group(group) => string(&group.expr),
        _ => None,
    }
}

fn fingerprint(name: &Ident, input: ParseStream<'_>) -> syn::Result<Vec<Expr>> {
    if !input.peek(syn::token::Paren) {
        return Err(expected(name, FINGERPRINT));
    }
    let content;
    parenthesized!(content in input);
    if content.is_empty() {
        return Err(expected(name, FINGERPRINT));
    }
    let parts = Punctuated::<Expr, Token![,]>::parse_terminated(&content);
    parts
        .map(|parts| parts.into_iter().collect())
        .map_err(|error| syn::Error::new(error.span(), format!("expected {FINGERPRINT}")))
}

fn failure(value: Expr) -> syn::Result<Expr> {
    match value {
        Expr::Path(_) | Expr::Closure(_) => Ok(value),
        _ => Err(expected(value, FAILURE)),
    }
}

fn replay(value: Expr) -> syn::Result<bool> {
    match &value {
        Expr::Path(path) if path.path.is_ident("replay") => Ok(true),
        _ => Err(expected(value, ERRORS)),
    }
}

fn library(value: Expr) -> syn::Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path),
        _ => Err(expected(value, CRATE)),
    }
}

fn skip_to_comma(input: ParseStream<'_>) -> syn::Result<()> {
    input.step(|cursor| {
        let mut rest = *cursor;
        while let Some((token, next)) = rest.token_tree() {
            if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',') {
                break;
            }
            rest = next;
        }
        Ok(((), rest))
    })
}

/// The argument that was probably meant: one that differs in no more than two places, or another library's word for it.
fn similar(name: &str) -> Option<&'static str> {
    const KNOWN: [&str; 10] =
        ["guard", "operation", "key", "scope", "unscoped", "fingerprint", "retention", "lease", "failure", "errors"];
    match name {
        "ttl" | "expires" | "expiry" => return Some("retention"),
        "name" | "op" => return Some("operation"),
        "store" => return Some("guard"),
        "tenant" => return Some("scope"),
        "global" => return Some("unscoped"),
        "payload" | "hash" => return Some("fingerprint"),
        "timeout" => return Some("lease"),
        "classify" => return Some("failure"),
        _ => {}
    }
    KNOWN.into_iter().find(|known| distance(name, known) <= 2)
}

/// Levenshtein's.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_the_argument_that_was_meant() {
        assert_eq!(similar("oparation"), Some("operation"));
        assert_eq!(similar("keys"), Some("key"));
        assert_eq!(similar("ttl"), Some("retention"));
        assert_eq!(similar("codec"), None);
    }
}
