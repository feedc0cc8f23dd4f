use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Expr, Ident};

use crate::args::{Complete, Scope, Text};
use crate::check::Function;

/// The function with its outside rewritten:
///
/// ```ignore
/// async fn pay(order: Order) -> Result<Receipt, PayError> {
///     let guard = Guard::clone(&<guard>);
///     let call = Call::new("orders.pay", to_key(&<key>), to_scope(&<scope>));
///     let call = call.fingerprint(Parts::new().part(&<part>));      // and retention, lease, where given
///     call.run(&guard, <failure>, async move { <body> }).await
/// }
/// ```
///
/// Names bound here are invisible to the body and to the attribute's expressions, and theirs to this: what is spanned with
/// `mixed_site` has its own hygiene. What can fail to type-check is spanned with the tokens that the reader can change.
pub(crate) fn expand(args: &Complete, function: &Function) -> TokenStream {
    let Function { attributes, visibility, signature, returns, inner_attributes, body } = function;
    let Complete { library, operation, .. } = args;
    let here = Span::mixed_site();
    let runtime = quote_spanned!(here=> #library::function::runtime);
    let [guard, call] = ["guard", "call"].map(|name| Ident::new(name, here));

    let guard_reference = reference(&args.guard);
    let guard_type = quote_spanned!(args.guard.span()=> #library::function::runtime::Guard);
    let key = key(args);
    let scope = scope(args);
    let settings = settings(args, &call);
    let failure = match &args.failure {
        Some(failure) => failure.to_token_stream(),
        None => quote_spanned!(here=> #runtime::unclassified),
    };
    let run = Ident::new(if args.replay_errors { "run_replaying_errors" } else { "run" }, here);
    let returned = quote_spanned!(returns.span()=> #library::function::runtime::returned::<#returns>());

    quote_spanned! {here=>
        #(#attributes)*
        #visibility #signature {
            #(#inner_attributes)*
            let #guard = #guard_type::clone(#guard_reference);
            let #call = #runtime::Call::new(#operation, #key, #scope);
            #settings
            #call.#run::<#returns, _, _>(&#guard, #failure, async move {
                // Never run. It tells the block its type, so that the body infers and coerces as it did in the function.
                #[allow(unreachable_code, clippy::needless_return, clippy::diverging_sub_expression)]
                if false {
                    return #returned;
                }
                #[allow(clippy::needless_return)]
                { #body }
            })
            .await
        }
    }
}

fn key(args: &Complete) -> TokenStream {
    let library = &args.library;
    match &args.key {
        Text::Template(template) => {
            let (span, arguments) = (template.literal().span(), template.arguments());
            quote_spanned!(span=> #library::function::runtime::template_key(#arguments))
        }
        Text::Expr(expr) => {
            let reference = reference(expr);
            quote_spanned!(expr.span()=> #library::function::ToKey::to_key(#reference))
        }
    }
}

fn scope(args: &Complete) -> TokenStream {
    let library = &args.library;
    match &args.scope {
        Scope::Unscoped => quote!(#library::function::runtime::unscoped()),
        Scope::Of(Text::Template(template)) => {
            let (span, arguments) = (template.literal().span(), template.arguments());
            quote_spanned!(span=> #library::function::runtime::template_scope(#arguments))
        }
        Scope::Of(Text::Expr(expr)) => {
            let reference = reference(expr);
            quote_spanned!(expr.span()=> #library::function::ToScope::to_scope(#reference))
        }
    }
}

/// A statement for each setting that was given, in the documented order.
fn settings(args: &Complete, call: &Ident) -> TokenStream {
    let library = &args.library;
    let here = Span::mixed_site();
    let fingerprint = args.fingerprint.as_ref().map(|parts| {
        let parts = parts.iter().map(|part| {
            let reference = reference(part);
            quote_spanned!(part.span()=> .part(#reference))
        });
        quote_spanned!(here=> let #call = #call.fingerprint(#library::function::runtime::Parts::new() #(#parts)*);)
    });
    let retention = args.retention.as_ref().map(|time| quote_spanned!(here=> let #call = #call.retention(#time);));
    let lease = args.lease.as_ref().map(|time| quote_spanned!(here=> let #call = #call.lease(#time);));
    quote!(#fingerprint #retention #lease)
}

/// `&expr`, so that a field or an argument is looked at and left where it is.
fn reference(expr: &Expr) -> TokenStream {
    let span = expr.span();
    let expr: Expr = syn::parse_quote_spanned!(span=> &#expr);
    expr.to_token_stream()
}
