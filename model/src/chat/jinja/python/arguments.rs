//! Arguments of a call, as Python binds them to parameters.

use crate::chat::jinja::error::Error;
use crate::chat::jinja::python::value::Value;

type Run<T> = Result<T, Error>;

/// The arguments of a call.
#[derive(Debug, Default, Clone)]
pub(crate) struct Arguments {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(String, Value)>,
}

impl Arguments {
    /// Returns the values of parameters in order. Those that are missing are `None`.
    pub(crate) fn bind<const N: usize>(
        self,
        what: &str,
        parameters: [&str; N],
    ) -> Run<[Option<Value>; N]> {
        let mut values = [const { None }; N];
        if self.positional.len() > N {
            let given = self.positional.len();
            return Err(Error::failed(format!(
                "{what} takes {N} arguments, not {given}"
            )));
        }

        for (slot, value) in values.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }

        for (name, value) in self.named {
            let slot = parameters.iter().position(|parameter| *parameter == name);
            let Some(slot) = slot.map(|at| &mut values[at]) else {
                return Err(Error::failed(format!(
                    "{what} has no argument named `{name}`"
                )));
            };

            if slot.is_some() {
                return Err(Error::failed(format!(
                    "{what} has two values for the argument `{name}`"
                )));
            }

            *slot = Some(value);
        }

        Ok(values)
    }
}
