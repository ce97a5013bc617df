//! Derives the XDR codec of `afar-xdr` for structs and unions.
//!
//! - A struct is its fields in declaration order, without separators (RFC 4506 §4.14).
//! - An enum without fields is one word holding its discriminant (§4.3); an unknown word is a
//!   decoding error.
//! - An enum with fields is a discriminated union (§4.15): a word, then the fields of the arm it
//!   selects. Arms are numbered by `#[xdr(case = N)]` or by an explicit discriminant; one arm
//!   `#[xdr(default)] Other(u32)` may keep every other word.
//!
//! Use the macros through `afar_xdr`, which re-exports them beside the traits they implement.

mod arms;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{
    Data, DeriveInput, Field, Fields, Generics, Index, Member, parse_macro_input, parse_quote,
};

/// Implements `afar_xdr::Encode`: fields in declaration order, unions as word and arm.
#[proc_macro_derive(Encode, attributes(xdr))]
pub fn derive_encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    encode(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// Implements `afar_xdr::Decode`; an error names the innermost `Type.field` it happened in.
#[proc_macro_derive(Decode, attributes(xdr))]
pub fn derive_decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    decode(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

fn encode(input: &DeriveInput) -> syn::Result<Tokens> {
    let body = match &input.data {
        Data::Struct(data) => {
            let fields = members(&data.fields);
            quote! { #(::afar_xdr::Encode::encode(&self.#fields, out);)* }
        }
        Data::Enum(data) => arms::encode(data)?,
        Data::Union(_) => return Err(no_union(input)),
    };
    let name = &input.ident;
    let generics = bound(&input.generics, &parse_quote!(::afar_xdr::Encode));
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::afar_xdr::Encode for #name #ty_generics #where_clause {
            fn encode(&self, out: &mut ::afar_xdr::BytesMut) {
                #body
            }
        }
    })
}

fn decode(input: &DeriveInput) -> syn::Result<Tokens> {
    let name = &input.ident;
    let (min_len, max_len, body) = match &input.data {
        Data::Struct(data) => {
            let (min, max) = lengths(&data.fields);
            let value = construct(&quote!(Self), &name.to_string(), &data.fields);
            (min, max, quote! { ::core::result::Result::Ok(#value) })
        }
        Data::Enum(data) => arms::decode(name, data)?,
        Data::Union(_) => return Err(no_union(input)),
    };
    let generics = bound(&input.generics, &parse_quote!(::afar_xdr::Decode));
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::afar_xdr::Decode for #name #ty_generics #where_clause {
            const MIN_LEN: usize = #min_len;
            const MAX_LEN: usize = #max_len;
            fn decode(
                input: &mut ::afar_xdr::Decoder<'_>,
            ) -> ::core::result::Result<Self, ::afar_xdr::DecodeError> {
                #body
            }
        }
    })
}

fn no_union(input: &DeriveInput) -> syn::Error {
    syn::Error::new_spanned(&input.ident, "an XDR union is written as a Rust enum")
}

/// The given generics with `bound` required of every type parameter.
fn bound(generics: &Generics, bound: &syn::TypeParamBound) -> Generics {
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(bound.clone());
    }
    generics
}

/// How each field is named after `self.`.
fn members(fields: &Fields) -> Vec<Member> {
    fields.iter().enumerate().map(member).collect()
}

fn member((position, field): (usize, &Field)) -> Member {
    match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index::from(position)),
    }
}

/// The shortest and longest encoding of these fields, as constant expressions.
fn lengths(fields: &Fields) -> (Tokens, Tokens) {
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    (
        quote! { 0usize #(+ <#types as ::afar_xdr::Decode>::MIN_LEN)* },
        quote! { 0usize #(.saturating_add(<#types as ::afar_xdr::Decode>::MAX_LEN))* },
    )
}

/// An expression that decodes every field in order and builds `path` from them. Braces work for
/// tuple structs and unit structs too.
fn construct(path: &Tokens, owner: &str, fields: &Fields) -> Tokens {
    let names = members(fields);
    let values = names.iter().map(|member| {
        let value = quote!(::afar_xdr::Decode::decode(input));
        match member {
            Member::Named(name) => {
                let label = format!("{owner}.{name}");
                quote!(#value.map_err(|error| error.within(#label))?)
            }
            // A single unnamed field says less than the field this value stands in.
            Member::Unnamed(_) if fields.len() == 1 => quote!(#value?),
            Member::Unnamed(index) => {
                let label = format!("{owner}.{}", index.index);
                quote!(#value.map_err(|error| error.within(#label))?)
            }
        }
    });
    quote! { #path { #(#names: #values),* } }
}
