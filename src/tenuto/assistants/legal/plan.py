"""The plan of a legal question: the router, the experts that it names, then the decision.

The router's value is the field that leads. Its expert is required; the expert of the other field works beside it where
the router wants it, and may fail.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

from tenuto.model.plan import Condition, Plan, Step


class LegalField(StrEnum):
    """A field of law with an expert of its own."""

    LABOUR = "labour"
    CONTRACT = "contract"

    @property
    def other(self) -> LegalField:
        """The other field."""
        return LegalField.CONTRACT if self is LegalField.LABOUR else LegalField.LABOUR


TASK_TYPE: Final = "legal_consultation"
ROUTER: Final = "legal-router"
EXPERTS: Final = {LegalField.LABOUR: "labour-law-expert", LegalField.CONTRACT: "contract-law-expert"}
NO_FIELD: Final = "none"
"""The router's value if no expert is to be asked."""
ROUTE: Final = "route"
ASIDE: Final = "aside"
ROUTING: Final = "routing"
DECIDE: Final = "decision"
DECISION: Final = "final_decision"
TIMEOUT: Final = timedelta(minutes=5)
PATIENT_TIMEOUT: Final = timedelta(hours=1)
"""With a model on this machine, which may write two words a second, for one agent at a time."""
_RETRIES: Final = 1


def legal_plan(decision_agent: str, *, patient: bool = False) -> Plan:
    """The plan, with the agent that may write the protected keys of such a task; a `patient` one gives agents time."""
    timeout = PATIENT_TIMEOUT if patient else TIMEOUT
    step_timeout = timeout if patient else None
    leads = [
        _expert(field, field.value, required=True, when=(_equals(ROUTE, field),), timeout=step_timeout)
        for field in LegalField
    ]
    beside = [
        _expert(
            field,
            f"{field}-beside",
            required=False,
            when=(_equals(ROUTE, field.other), _equals(ASIDE, field)),
            timeout=step_timeout,
        )
        for field in LegalField
    ]
    experts = (*leads, *beside)
    return Plan(
        steps=(
            Step(id=ROUTE, agent=ROUTER, retries=_RETRIES, timeout=step_timeout),
            *experts,
            Step(
                id=DECIDE,
                agent=decision_agent,
                output_key=DECISION,
                after=tuple(step.id for step in experts),
                retries=_RETRIES,
                timeout=step_timeout,
            ),
        ),
        timeout=timeout,
    )


def _expert(
    field: LegalField, step_id: str, *, required: bool, when: tuple[Condition, ...], timeout: timedelta | None
) -> Step:
    return Step(
        id=step_id,
        agent=EXPERTS[field],
        output_key=field.value,
        after=(ROUTE,),
        required=required,
        retries=_RETRIES,
        when=when,
        timeout=timeout,
    )


def _equals(key: str, field: LegalField) -> Condition:
    return Condition(key=key, value=field.value)
