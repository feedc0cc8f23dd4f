use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::{Attribute, ReturnType, Signature, Token, Type, Visibility};

/// Every mistake of one attribute, so that all are reported at once.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            none => *none = Some(error),
        }
    }

    pub(crate) fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    pub(crate) fn on(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn into_compile_errors(self) -> Option<TokenStream> {
        self.0.map(|errors| errors.into_compile_error())
    }
}

/// An `async fn` that can be guarded. Its body stays as it was written and is never parsed: a body that is half typed still
/// has a signature, and its own syntax errors are the compiler's to report.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) returns: Type,
    pub(crate) inner_attributes: Vec<Attribute>,
    pub(crate) body: TokenStream,
}

impl Function {
    /// The function, or at least one error.
    pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Self> {
        let parsed = match Item::parse.parse2(item.clone()) {
            Ok(parsed) => parsed,
            Err(_) if !has_fn(&item) => {
                let first = item.into_iter().next().map_or_else(Span::call_site, |token| token.span());
                errors.at(first, "`#[idempotent]` guards an `async fn`");
                return None;
            }
            Err(error) => {
                errors.push(error);
                return None;
            }
        };
        let Item { attributes, visibility, signature, body } = parsed;
        let Some((inner_attributes, body)) = body else {
            errors.on(&signature, "this function has no body to guard: put `#[idempotent]` on its implementations");
            return None;
        };
        if signature.asyncness.is_none() {
            errors.at(signature.fn_token.span, not_async(&signature.output));
            return None;
        }
        let ReturnType::Type(_, returns) = &signature.output else {
            errors.on(
                &signature.ident,
                "an idempotent function returns `Result<T, E>`: repeats get the stored `T`, and refusals come back as `E`",
            );
            return None;
        };
        if let Some(unnamed) = keyword_impl(returns.to_token_stream()) {
            errors.at(
                unnamed,
                "a stored value is read back as a type that has a name: replace `impl Trait` in the return type",
            );
            return None;
        }
        let returns = Type::clone(returns);
        Some(Self { attributes, visibility, signature, returns, inner_attributes, body })
    }
}

/// A function as it is written, its body as tokens.
struct Item {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    body: Option<(Vec<Attribute>, TokenStream)>,
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature = input.parse()?;
        if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            return Ok(Self { attributes, visibility, signature, body: None });
        }
        let content;
        syn::braced!(content in input);
        let body = Some((content.call(Attribute::parse_inner)?, content.parse()?));
        Ok(Self { attributes, visibility, signature, body })
    }
}

fn has_fn(item: &TokenStream) -> bool {
    item.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "fn"))
}

fn not_async(output: &ReturnType) -> &'static str {
    let returns_pin = matches!(output, ReturnType::Type(_, returns) if matches!(&**returns,
        Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Pin")));
    if returns_pin {
        return "`#[idempotent]` guards an `async fn`, and this one returns a boxed future. If `#[async_trait]` made it so, move \
                the body into an inherent `async fn` with `#[idempotent]` and call that here; a trait with native `async fn` \
                needs no such step";
    }
    "`#[idempotent]` guards an `async fn`: add `async`"
}

/// Where `impl` stands in a type, at any depth.
fn keyword_impl(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ident == "impl" => Some(ident.span()),
        TokenTree::Group(group) => keyword_impl(group.stream()),
        _ => None,
    })
}
