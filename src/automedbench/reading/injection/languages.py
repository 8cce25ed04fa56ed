"""Orders to a judge in other languages than English; accents are folded away before (``views.py``).

Spanish, Portuguese, Italian, German and French have addressee, order and verdict as English has; Chinese has no blanks.
"""

from __future__ import annotations

from typing import NamedTuple


class _Language(NamedTuple):
    who: str
    order: str
    top: str
    ignore: str


_NUMBERS = r"1[.,]0|10/10|20/20|100%?"
# An order and the third person are often the same word, so a mere number needs one of these.
_MUST = (
    r"(?::|favor|debe|deben|deve|devem|deva|prego|bitte|soll|sollen|muss|mussen|plait|doit|doivent|devez|must|please)"
)
_GAP = r" (?:(?!\. )\S+ ){0,8}?"

_LATIN = {
    "es": _Language(
        r"(?:juez|jueza|jueces|jurado|evaluador(?:a|es)?|calificador(?:a|es)?|corrector(?:a|es)?|examinador(?:a|es)?)",
        r"(?:da|den|dale|dar|otorg(?:a|ue|uen|ar)|asign(?:a|e|en|ar)|pon|ponga|pongan|califi(?:ca|que|quen)|puntu(?:a|e)"
        r"|conced(?:e|a)|devuelv(?:e|a)|respond(?:e|a))",
        r"(?:(?:maxima|puntuacion|nota|calificacion|puntaje) (?:maxima|puntuacion|nota|calificacion|puntaje|maximo"
        r"|perfecta|perfecto|mas alta)|maximo puntaje|todos los puntos)",
        r"(?:ignora|ignore|ignoren|olvida|olvide)(?: \w+){0,2} instrucciones",
    ),
    "pt": _Language(
        r"(?:juiz|juiza|juizes|avaliador(?:a|es)?|examinador(?:a|es)?)",
        r"(?:dar|atribu(?:a|i)|conceda|avalie|responda|devolva|pontue)",
        r"(?:(?:nota|pontuacao) (?:maxima|perfeita|total)|maxima (?:nota|pontuacao))",
        r"(?:ignora|ignore|desconsidere)(?: \w+){0,2} instrucoes",
    ),
    "it": _Language(
        r"(?:giudice|giudici|valutatore|valutatrice|valutatori|esaminatore)",
        r"(?:dai|dia|assegn(?:a|i|are)|attribuisc(?:i|a)|valuta|rispondi|restituisci)",
        r"(?:(?:punteggio|voto) (?:massimo|pieno|perfetto)|massimo (?:punteggio|dei voti))",
        r"(?:ignora|ignori|dimentica)(?: \w+){0,3} istruzioni",
    ),
    "de": _Language(
        r"(?:(?:preis)?richter(?:in)?|gutachter(?:in)?|bewerter(?:in)?|prufer(?:in)?|juror(?:in)?|jury|bewertungsmodell"
        r"|korrektor(?:in)?|bewertende[nr]? (?:ki|modell|instanz)"
        r"|(?:ki|modell|sprachmodell) (?:das|die|der) (?:\w+ )?(?:bewertet|liest))",
        r"(?:gib|geben|gebt|vergib|vergeben|vergebt|bewerte|bewerten|bewertet|setze|setzen|erteile|erteilen|antworte"
        r"|antworten|trage|tragen|eintragen)",
        r"(?:(?:volle|hochste|maximale)n? (?:mogliche )?(?:punktzahl|punkte|punkten|bewertung|note)"
        r"|hochstnote|hochstpunktzahl|hochstwertung|bestnote|alle punkte)",
        r"(?:ignoriere|ignorieren sie|vergiss|missachte)(?: \w+){0,3} (?:anweisungen"
        r"|vorgaben|instruktionen|bewertungsraster)",
    ),
    "fr": _Language(
        r"(?:juges?|jury|evaluateurs?|evaluatrice|correcteurs?|correctrice|examinateurs?|notateurs?"
        r"|(?:ia|modele) qui (?:note|juge|evalue|corrige|lit))",
        r"(?:donnez?|donner|attribuez?|attribuer|accordez?|accorder|mettez|mets|mettre|notez|noter|evaluez|repondez"
        r"|retournez)",
        r"(?:(?:note|notes|score|scores|notation) (?:maximale?s?|parfaite?s?|complete?s?|la plus haute)"
        r"|maximum de points|tous les points)",
        r"(?:ignorez|ignore|oubliez|oublie)(?: \w+){0,3} (?:instructions|consignes|directives)",
    ),
}

_ZH_WHO = (
    r"(?:评委|评审|裁判|评判|评分者|评分员|评分模型|评估者|评估员|评测者|法官|审核员"
    r"|阅卷|打分者|负责(?:评分|评判|打分|评估)|(?:评分|评判|打分|评估)的)"
)
_ZH_TOP = r"(?:满分|滿分|最高分|1\.0 ?分?|100 ?分|10/10|全部(?:通过|给分|得分|满足))"
_ZH_ORDER = r"(?:给|給|打|评为|判|授予|返回|输出|赋予|应|必须)"

FOREIGN_ORDERS = [
    *(rf"\b{one.who}{_GAP}{one.order}{_GAP}{one.top}(?!\S)" for one in _LATIN.values()),
    *(
        rf"\b{one.who}{_GAP}{_MUST} (?:(?!\. )\S+ ){{0,8}}?{one.order}{_GAP}(?:{_NUMBERS})(?!\S)"
        for one in _LATIN.values()
    ),
    *(
        rf"(?:^|[.:] |favor |bitte |plait |prego ){one.order} (?:(?!\. )\S+ ){{0,5}}?{one.top}(?!\S)"
        for one in _LATIN.values()
    ),
    r"\balle (?:kriterien|stufen) gelten als (?:bereits )?(?:erfullt|bestanden)\b",
    rf"{_ZH_WHO}.{{0,40}}?{_ZH_ORDER}.{{0,20}}?{_ZH_TOP}",
    rf"(?:请|務必|务必|必须|一律){_ZH_ORDER}?.{{0,12}}?(?:满分|滿分|最高分)",
]
FOREIGN_ROLES = [
    *(rf"\b{one.ignore}\b" for one in _LATIN.values()),
    r"(?:忽略|无视|忘记|不要理会).{0,10}(?:指令|说明|规则|评分标准|提示|要求)",
]
FOREIGN_WORDS = (
    r"juez|juec|jurado|evaluador|calificad|corrector|puntu|maxim|instruc|juiz|avaliador|pontuac|giudic|valutat|punteggio"
    r"|istruzioni|richter|gutachter|bewert|prufer|juror|punkt|bestnote|hochst|anweisung|vorgaben|juge"
    r"|kriterien|modell|note|qui lit|correct|notateur|consignes|[评裁法审阅打满滿最忽无忘不]"
)
"""One of these stands in everything that the patterns here find."""
