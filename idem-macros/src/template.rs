use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::{Expr, LitStr, Member};

/// A format string whose placeholders name values and fields: `"{order.id}/{line:04}"`.
///
/// The compiler's own format strings take plain names only. So each placeholder becomes a `format_args!` of its own, which
/// also lets the values be looked at one by one: an empty one is refused, and two of them never run into each other.
pub(crate) struct Template {
    literal: LitStr,
    /// The text before, between and after the values: one more than there are values.
    texts: Vec<String>,
    values: Vec<Value>,
}

struct Value {
    place: Expr,
    /// What stands behind the colon, if anything.
    format: String,
}

impl Template {
    pub(crate) fn parse(literal: LitStr) -> syn::Result<Self> {
        let source = literal.value();
        let mut texts = vec![String::new()];
        let mut values = Vec::new();
        let mut rest = source.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let (text, mark) = rest.split_at(at);
            let current = texts.last_mut().expect("never empty");
            current.push_str(text);
            if let Some(after) = mark.strip_prefix("{{").or_else(|| mark.strip_prefix("}}")) {
                current.push_str(&mark[..1]);
                rest = after;
                continue;
            }
            let Some((inside, after)) = mark.strip_prefix('{').and_then(|mark| mark.split_once('}')) else {
                return Err(syn::Error::new(
                    literal.span(),
                    "a brace without its partner; one that stands for itself is written `{{` or `}}`",
                ));
            };
            values.push(Value::parse(inside, &literal)?);
            texts.push(String::new());
            rest = after;
        }
        texts.last_mut().expect("never empty").push_str(rest);
        Ok(Self { literal, texts, values })
    }

    /// How many values it takes in.
    pub(crate) fn values(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn literal(&self) -> &LitStr {
        &self.literal
    }

    /// Two arguments for the runtime: the texts, and the values to stand between them.
    pub(crate) fn arguments(&self) -> TokenStream {
        let span = self.literal.span();
        let texts = &self.texts;
        let values = self.values.iter().map(|Value { place, format }| {
            let format = LitStr::new(&format!("{{{format}}}"), span);
            quote_spanned!(span=> ::core::format_args!(#format, #place))
        });
        quote_spanned!(span=> &[#(#texts),*], &[#(#values),*])
    }
}

impl Value {
    fn parse(inside: &str, literal: &LitStr) -> syn::Result<Self> {
        let (name, format) = match inside.find(':') {
            Some(colon) if !inside[colon..].starts_with("::") => inside.split_at(colon),
            _ => (inside, ""),
        };
        let error = |message: String| syn::Error::new(literal.span(), message);
        let name = name.trim();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(error(format!("`{{{inside}}}` must name an argument or a field of one: `{{order.id}}`")));
        }
        if format.contains('$') {
            return Err(error(format!("`{{{inside}}}`: a width or precision must be written as a number here")));
        }
        match LitStr::new(name, literal.span()).parse::<Expr>() {
            Ok(place) if is_place(&place) => Ok(Self { place, format: format.to_owned() }),
            _ => Err(error(format!(
                "`{{{inside}}}` must name an argument or a field of one: `{{order.id}}`. For anything else give an expression \
                 instead of a string, such as `format!(…)`"
            ))),
        }
    }
}

/// A name, or a field of a place.
fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(path) => path.qself.is_none() && path.path.get_ident().is_some(),
        Expr::Field(field) => matches!(field.member, Member::Named(_) | Member::Unnamed(_)) && is_place(&field.base),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;
    use quote::ToTokens;

    use super::*;

    fn parse(text: &str) -> syn::Result<Template> {
        Template::parse(LitStr::new(text, Span::call_site()))
    }

    #[test]
    fn texts_stand_around_values() {
        let template = parse("a{{{order.id}-{pair.0.1:>4}}}{self.x:?}").unwrap();
        assert_eq!(template.texts, ["a{", "-", "}", ""]);
        let shown = |v: &Value| format!("{}|{}", v.place.to_token_stream().to_string().replace(' ', ""), v.format);
        assert_eq!(template.values.iter().map(shown).collect::<Vec<_>>(), ["order.id|", "pair.0.1|:>4", "self.x|:?"]);
        assert_eq!(parse("plain").unwrap().values(), 0);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for bad in ["{}", "{0}", "{:?}", "{a", "a}", "{a.b()}", "{a + b}", "{a:w$}", "{A::B}", "{a b}"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
