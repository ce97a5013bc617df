//! Enums: plain ones are a word, those with fields are discriminated unions.

use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{DataEnum, Expr, Fields, Ident, Variant};

/// What selects an arm of the union.
enum Selector {
    /// This word.
    Case(Expr),
    /// Every word no other arm has; the arm keeps it.
    Default,
}

/// The body of `encode`.
pub(crate) fn encode(data: &DataEnum) -> syn::Result<Tokens> {
    let mut arms = Vec::with_capacity(data.variants.len());
    for variant in &data.variants {
        let name = &variant.ident;
        let members = crate::members(&variant.fields);
        let bindings: Vec<Ident> = (0..members.len())
            .map(|position| format_ident!("field_{position}"))
            .collect();
        let word = match selector(variant)? {
            Selector::Case(case) => {
                quote! { ::afar_xdr::Encode::encode(&((#case) as u32), out); }
            }
            Selector::Default => Tokens::new(),
        };
        arms.push(quote! {
            Self::#name { #(#members: #bindings),* } => {
                #word
                #(::afar_xdr::Encode::encode(#bindings, out);)*
            }
        });
    }
    Ok(quote! { match self { #(#arms)* } })
}

/// Shortest length, longest length and body of `decode`.
pub(crate) fn decode(owner: &Ident, data: &DataEnum) -> syn::Result<(Tokens, Tokens, Tokens)> {
    let mut cases = Vec::new();
    let mut longest = Vec::new();
    let mut default = None;
    for variant in &data.variants {
        let name = &variant.ident;
        match selector(variant)? {
            Selector::Case(case) => {
                let label = format!("{owner}::{name}");
                let value = crate::construct(&quote!(Self::#name), &label, &variant.fields);
                longest.push(crate::lengths(&variant.fields).1);
                cases.push(quote! {
                    if word == (#case) as u32 {
                        return ::core::result::Result::Ok(#value);
                    }
                });
            }
            Selector::Default if default.is_some() => {
                return Err(syn::Error::new_spanned(variant, "a second default arm"));
            }
            Selector::Default => {
                default = Some(quote! { ::core::result::Result::Ok(Self::#name(word)) })
            }
        }
    }
    let label = owner.to_string();
    let otherwise = default.unwrap_or_else(|| {
        quote! { ::core::result::Result::Err(input.invalid_word(#label, word)) }
    });
    let max = quote! {{
        let mut longest = 0usize;
        #( let arm = #longest; if arm > longest { longest = arm; } )*
        longest.saturating_add(4)
    }};
    let body = quote! {
        let word: u32 = ::afar_xdr::Decode::decode(input).map_err(|error| error.within(#label))?;
        #(#cases)*
        #otherwise
    };
    Ok((quote!(4usize), max, body))
}

fn selector(variant: &Variant) -> syn::Result<Selector> {
    let mut found = None;
    for attribute in variant
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("xdr"))
    {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("case") {
                found = Some(Selector::Case(meta.value()?.parse()?));
                Ok(())
            } else if meta.path.is_ident("default") {
                found = Some(Selector::Default);
                Ok(())
            } else {
                Err(meta.error("expected `case = N` or `default`"))
            }
        })?;
    }
    if let Some(Selector::Default) = found
        && !matches!(&variant.fields, Fields::Unnamed(fields) if fields.unnamed.len() == 1)
    {
        return Err(syn::Error::new_spanned(
            variant,
            "the default arm holds one u32",
        ));
    }
    let discriminant = variant
        .discriminant
        .as_ref()
        .map(|(_, value)| Selector::Case(value.clone()));
    found.or(discriminant).ok_or_else(|| {
        syn::Error::new_spanned(variant, "give the arm `#[xdr(case = N)]` or a discriminant")
    })
}
