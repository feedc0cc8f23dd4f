use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Expr, ExprReference, Ident, Token};

use crate::args::{Complete, Scope, Text};
use crate::check::Function;

/// The function with its outside rewritten:
///
/// ```text
/// async fn pay(order: Order) -> Result<Receipt, PayError> {
///     let guard = Guard::clone(&<guard>);
///     let call = Call::new("orders.pay", to_key(&<key>), to_scope(&<scope>));
///     let call = call.fingerprint(Parts::new().part(&<part>));      // and retention, lease, where given
///     call.run(&guard, returns::<Result<Receipt, PayError>>(), <failure>, async move { <body> }).await
/// }
/// ```
///
/// Names bound here are invisible to the body and to the attribute's expressions, and theirs to this: what is spanned with
/// `mixed_site` has its own hygiene. What can fail to type-check is spanned with the tokens that the reader can change.
pub(crate) fn expand(args: &Complete, function: &Function) -> TokenStream {
    let Function { attributes, visibility, signature, returns, inner_attributes, body } = function;
    let operation = &args.operation;
    let here = Span::mixed_site();
    let runtime = runtime_at(args, here);
    let [guard, call] = ["guard", "call"].map(|name| Ident::new(name, here));

    let guard_reference = reference(&args.guard);
    let guards = runtime_at(args, args.guard.span());
    let key = key(args);
    let scope = scope(args);
    let settings = settings(args, &call);
    let failure = match &args.failure {
        Some(failure) => failure.to_token_stream(),
        None => quote_spanned!(here=> #runtime::unclassified),
    };
    let kept = Ident::new(if args.replay_errors { "returns_replaying_errors" } else { "returns" }, here);
    let there = runtime_at(args, returns.span());
    let kept = quote_spanned!(returns.span()=> #there::#kept::<#returns>());
    let returned = quote_spanned!(returns.span()=> #there::returned::<#returns>());

    let work = quote_spanned! {here=>
        async move {
            // Never run. It tells the block its type, so that the body infers and coerces as it did in the function.
            #[allow(unreachable_code, clippy::needless_return, clippy::diverging_sub_expression)]
            if false {
                return #returned;
            }
            { #body }
        }
    };
    quote_spanned! {here=>
        #(#attributes)*
        #visibility #signature {
            #(#inner_attributes)*
            let #guard = #guards::Guard::clone(#guard_reference);
            let #call = #runtime::Call::new(#operation, #key, #scope);
            #settings
            #call.run(&#guard, #kept, #failure, #work).await
        }
    }
}

fn key(args: &Complete) -> TokenStream {
    made_from(args, &args.key, "template_key", "to_key")
}

fn scope(args: &Complete) -> TokenStream {
    match &args.scope {
        Scope::Unscoped => {
            let runtime = runtime_at(args, Span::mixed_site());
            quote!(#runtime::unscoped())
        }
        Scope::Of(text) => made_from(args, text, "template_scope", "to_scope"),
    }
}

fn made_from(args: &Complete, text: &Text, template: &str, convert: &str) -> TokenStream {
    let (span, function, arguments) = match text {
        Text::Template(text) => (text.literal().span(), template, text.arguments()),
        Text::Expr(expr) => (expr.span(), convert, reference(expr)),
    };
    let (runtime, function) = (runtime_at(args, span), Ident::new(function, span));
    quote_spanned!(span=> #runtime::#function(#arguments))
}

/// A statement for each setting that was given, in the documented order.
fn settings(args: &Complete, call: &Ident) -> TokenStream {
    let here = Span::mixed_site();
    let runtime = runtime_at(args, here);
    let fingerprint = args.fingerprint.as_ref().map(|parts| {
        let parts = parts.iter().map(|part| {
            let reference = reference(part);
            quote_spanned!(part.span()=> .part(#reference))
        });
        quote_spanned!(here=> let #call = #call.fingerprint(#runtime::Parts::new() #(#parts)*);)
    });
    let retention = args.retention.as_ref().map(|time| quote_spanned!(here=> let #call = #call.retention(#time);));
    let lease = args.lease.as_ref().map(|time| quote_spanned!(here=> let #call = #call.lease(#time);));
    quote!(#fingerprint #retention #lease)
}

/// The path of what is expanded into. All of it has the span of what it is used for, or else errors would point at the
/// attribute.
fn runtime_at(args: &Complete, span: Span) -> TokenStream {
    match &args.library {
        Some(library) => quote_spanned!(span=> #library::function::runtime),
        None => quote_spanned!(span=> ::idem_layer::function::runtime),
    }
}

/// `&expr`, so that a field or an argument is looked at and left where it is. Built rather than quoted: it gets the
/// parentheses that it needs, and no others for the compiler to complain of.
fn reference(expr: &Expr) -> TokenStream {
    let reference = ExprReference {
        attrs: Vec::new(),
        and_token: Token![&](expr.span()),
        mutability: None,
        expr: Box::new(expr.clone()),
    };
    reference.to_token_stream()
}
