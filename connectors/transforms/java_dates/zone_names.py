"""Knows the names of time zones that Java reads in English, and how far from UTC each of them is.

Every line of the table has a zone, what its names say of summer time, and those names, in the order in which Java looks
them up; UTC comes first, as it is the zone of the format. `0` is standard time, another number the minutes that summer
time is ahead of it; `zone`: the zone itself says which of the two it was, as its names are the same for both, or it has
no summer time now. The names are what `DateFormatSymbols` of Java 17 gives for `Locale.US`: of zones that share a name,
the first has it.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

_TABLE: Final = """\
UTC zone coordinated universal time, utc
America/Los_Angeles 0 pacific standard time, pst
America/Los_Angeles 60 pacific daylight time, pdt
America/Denver 0 mountain standard time, mst
America/Denver 60 mountain daylight time, mdt
America/Chicago 0 central standard time, cst
America/Chicago 60 central daylight time, cdt
America/New_York 0 eastern standard time, est
America/New_York 60 eastern daylight time, edt
Pacific/Honolulu 0 hawaii-aleutian standard time, hst
Pacific/Honolulu zone hawaii-aleutian daylight time, hdt
America/Anchorage 0 alaska standard time, akst
America/Anchorage 60 alaska daylight time, akdt
America/Halifax 0 atlantic standard time, ast
America/Halifax 60 atlantic daylight time, adt
America/St_Johns 0 newfoundland standard time, nst
America/St_Johns 60 newfoundland daylight time, ndt
Europe/Paris 0 central european standard time, cet
Europe/Paris 60 central european summer time, cest
GMT zone greenwich mean time, gmt
Asia/Jerusalem 0 israel standard time, ist
Asia/Jerusalem 60 israel daylight time, idt
Asia/Tokyo 0 japan standard time, jst
Asia/Tokyo zone japan daylight time, jdt
Europe/Bucharest 0 eastern european standard time, eet
Europe/Bucharest 60 eastern european summer time, eest
Asia/Shanghai 0 china standard time
Asia/Shanghai zone china daylight time
Australia/Darwin 0 australian central standard time, acst
Australia/Darwin zone australian central daylight time, acdt
Australia/Sydney 0 australian eastern standard time, aest
Australia/Sydney 60 australian eastern daylight time, aedt
America/Sao_Paulo 0 brasilia standard time, brt
America/Sao_Paulo zone brasilia summer time, brst
Asia/Dhaka 0 bangladesh standard time, bdt
Asia/Dhaka zone bangladesh summer time, bdst
Africa/Harare 0 central africa time, cat
Africa/Harare zone central african summer time, cast
Africa/Addis_Ababa 0 east africa time, eat
Africa/Addis_Ababa zone eastern african summer time, east
Pacific/Apia 0 apia standard time, wsst
Pacific/Apia zone apia daylight time, wsdt
Asia/Yerevan 0 armenia standard time, amt
Asia/Yerevan zone armenia summer time, amst
Pacific/Auckland 0 new zealand standard time, nzst
Pacific/Auckland 60 new zealand daylight time, nzdt
Asia/Karachi 0 pakistan standard time, pkt
Asia/Karachi zone pakistan summer time, pkst
Pacific/Guadalcanal 0 solomon islands time, sbt
Pacific/Guadalcanal zone solomon is. summer time, sbst
Asia/Aden 0 arabian standard time
Asia/Aden zone arabian daylight time
Asia/Baku 0 azerbaijan standard time, azt
Asia/Baku zone azerbaijan summer time, azst
Asia/Dili 0 east timor time, tlt
Asia/Dili zone timor-leste summer time, tlst
Asia/Hovd 0 hovd standard time, hovt
Asia/Hovd zone hovd summer time, hovst
Asia/Omsk 0 omsk standard time, omst
Asia/Omsk zone omsk summer time, omsst
Asia/Oral 0 west kazakhstan time, orat
Asia/Oral zone oral summer time, orast
Asia/Aqtau 0 aqtt
Asia/Aqtau zone aqtau summer time, aqtst
Asia/Chita 0 yakutsk standard time, yakt
Asia/Chita zone yakutsk summer time, yakst
Asia/Dubai 0 gulf standard time, gst
Asia/Dubai zone gulf daylight time, gdt
Asia/Kabul 0 afghanistan time, aft
Asia/Kabul zone afghanistan summer time, afst
Asia/Seoul 0 korean standard time, kst
Asia/Seoul zone korean daylight time, kdt
Asia/Almaty 0 east kazakhstan time, almt
Asia/Almaty zone alma-ata summer time, almst
Asia/Anadyr 0 anadyr standard time, anat
Asia/Anadyr zone anadyr summer time, anast
Asia/Aqtobe zone aqtobe summer time
Asia/Atyrau zone atyrau daylight time
Asia/Brunei 0 brunei darussalam time, bnt
Asia/Brunei zone brunei summer time, bnst
Asia/Manila 0 philippine standard time
Asia/Manila zone philippine summer time
Asia/Saigon 0 indochina time, ict
Asia/Saigon zone indochina summer time, icst
Asia/Taipei 0 taipei standard time
Asia/Taipei zone taipei daylight time
Asia/Tehran 0 iran standard time, irst
Asia/Tehran zone iran daylight time, irdt
Indian/Mahe 0 seychelles time, sct
Indian/Mahe zone seychelles summer time, scst
Pacific/Yap 0 chuuk time, chut
Pacific/Yap zone chuuk summer time, chust
Africa/Accra zone ghana summer time, ghst
Africa/Lagos 0 west africa standard time, wat
Africa/Lagos zone west africa summer time, wast
America/Adak 0 hast
America/Adak 60 hadt
America/Lima 0 peru standard time, pet
America/Lima zone peru summer time, pest
Asia/Bishkek 0 kyrgyzstan time, kgt
Asia/Bishkek zone kirgizstan summer time, kgst
Asia/Colombo 0 india standard time
Asia/Colombo zone india daylight time
Asia/Irkutsk 0 irkutsk standard time, irkt
Asia/Irkutsk zone irkutsk summer time, irkst
Asia/Jakarta 0 western indonesia time, wib
Asia/Jakarta zone west indonesia summer time, wist
Asia/Kuching 0 malaysia time, myt
Asia/Kuching zone malaysia summer time, myst
Asia/Magadan 0 magadan standard time, magt
Asia/Magadan zone magadan summer time, magst
Asia/Rangoon 0 myanmar time, mmt
Asia/Rangoon zone myanmar summer time, mmst
Asia/Tbilisi 0 georgia standard time, get
Asia/Tbilisi zone georgia summer time, gest
Asia/Thimphu 0 bhutan time, btt
Asia/Thimphu zone bhutan summer time, btst
Europe/Minsk 0 moscow standard time, msk
Europe/Minsk zone moscow summer time, msd
Indian/Cocos 0 cocos islands time, cct
Indian/Cocos zone cocos islands summer time, ccst
Pacific/Fiji 0 fiji standard time, fjt
Pacific/Fiji zone fiji summer time, fjst
Pacific/Guam 0 chamorro standard time, chst
Pacific/Guam zone chamorro daylight time, chdt
Pacific/Niue 0 niue time, nut
Pacific/Niue zone niue summer time, nust
Pacific/Wake 0 wake island time, wakt
Pacific/Wake zone wake summer time, wakst
Pacific/Pitcairn zone pitcairn time
Pacific/Gambier zone gambier time
Africa/Maseru 0 south africa standard time
Africa/Maseru zone sast, south africa summer time
America/Jujuy 0 argentina standard time, art
America/Jujuy zone argentina summer time, arst
Asia/Ashgabat 0 turkmenistan standard time, tmt
Asia/Ashgabat zone turkmenistan summer time, tmst
Asia/Dushanbe 0 tajikistan time, tjt
Asia/Dushanbe zone tajikistan summer time, tjst
Asia/Jayapura 0 eastern indonesia time, wit
Asia/Jayapura zone east indonesia summer time, eist
Asia/Katmandu 0 nepal time, npt
Asia/Katmandu zone nepal summer time, npst
Asia/Makassar 0 central indonesia time, wita
Asia/Makassar zone central indonesia summer time, cist
Asia/Qostanay 0 qost
Asia/Qostanay zone kostanay summer time, qosst
Asia/Sakhalin 0 sakhalin standard time, sakt
Asia/Sakhalin zone sakhalin summer time, sakst
Asia/Tashkent 0 uzbekistan standard time, uzt
Asia/Tashkent zone uzbekistan summer time, uzst
Asia/Ust-Nera 0 vladivostok standard time, vlat
Asia/Ust-Nera zone vladivostok summer time, vlast
Europe/London 60 irish standard time
Europe/Jersey 60 british summer time, bst
Europe/Lisbon 0 western european standard time, wet
Europe/Lisbon 60 western european summer time, west
Europe/Samara 0 samara standard time, samt
Europe/Samara zone samara summer time, samst
Indian/Chagos 0 indian ocean time, iot
Indian/Chagos zone indian ocean territory summer time, iost
Pacific/Efate 0 vanuatu standard time, vut
Pacific/Efate zone vanuatu summer time, vust
Pacific/Nauru 0 nauru time, nrt
Pacific/Nauru zone nauru summer time, nrst
Pacific/Palau 0 palau time, pwt
Pacific/Palau zone palau summer time, pwst
America/Bogota 0 colombia standard time, cot
America/Bogota zone colombia summer time, cost
America/Cuiaba 0 amazon standard time
America/Cuiaba zone amazon summer time
America/Guyana 0 guyana time, gyt
America/Guyana zone guyana summer time, gyst
America/Havana 0 cuba standard time
America/Havana 60 cuba daylight time
America/La_Paz 0 bolivia time, bot
America/La_Paz zone bolivia summer time, bost
Asia/Hong_Kong 0 hong kong standard time, hkt
Asia/Hong_Kong zone hong kong summer time, hkst
Asia/Kamchatka 0 petropavlovsk-kamchatski standard time, pett
Asia/Kamchatka zone petropavlovsk-kamchatski summer time, petst
Asia/Qyzylorda 0 qyzt
Asia/Qyzylorda zone qyzylorda summer time, qyzst
Asia/Singapore 0 singapore standard time, sgt
Asia/Singapore zone singapore summer time, sgst
Indian/Reunion 0 réunion time, ret
Indian/Reunion zone reunion summer time, rest
Pacific/Easter 0 easter island standard time
Pacific/Easter 60 easter island summer time, easst
Pacific/Kosrae 0 kosrae time, kost
Pacific/Kosrae zone kosrae summer time, kosst
Pacific/Majuro 0 marshall islands time, mht
Pacific/Majuro zone marshall islands summer time, mhst
Pacific/Midway 0 samoa standard time, sst
Pacific/Midway zone samoa daylight time, sdt
Pacific/Noumea 0 new caledonia standard time, nct
Pacific/Noumea zone new caledonia summer time, ncst
Pacific/Ponape 0 ponape time, pont
Pacific/Ponape zone pohnpei summer time, ponst
Pacific/Tahiti 0 tahiti time, taht
Pacific/Tahiti zone tahiti summer time, tahst
Pacific/Tarawa 0 gilbert islands time, gilt
Pacific/Tarawa zone gilbert is. summer time, gilst
Pacific/Wallis 0 wallis & futuna time, wft
Pacific/Wallis zone wallis & futuna summer time, wfst
Africa/Windhoek zone western african time
America/Caracas 0 venezuela time, vet
America/Caracas zone venezuela summer time, vest
America/Cayenne 0 french guiana time, gft
America/Cayenne zone french guiana summer time, gfst
America/Godthab 0 west greenland standard time, wgt
America/Godthab 60 west greenland summer time, wgst
America/Noronha 0 fernando de noronha standard time, fnt
America/Noronha zone fernando de noronha summer time, fnst
Asia/Choibalsan 0 ulaanbaatar standard time, chot
Asia/Choibalsan zone ulaanbaatar summer time, chost
Atlantic/Azores 0 azores standard time, azot
Atlantic/Azores 60 azores summer time, azost
Australia/Eucla 0 australian central western standard time, acwst
Australia/Eucla zone australian central western daylight time, acwdt
Australia/Perth 0 australian western standard time, awst
Australia/Perth zone australian western daylight time, awdt
Indian/Maldives 0 maldives time, mvt
Indian/Maldives zone maldives summer time, mvst
Pacific/Chatham 0 chatham standard time, chast
Pacific/Chatham 60 chatham daylight time, chadt
Pacific/Fakaofo 0 tokelau time, tkt
Pacific/Fakaofo zone tokelau summer time, tkst
Pacific/Gambier 0 gamt
Pacific/Gambier zone gambier summer time, gamst
Pacific/Norfolk 0 norfolk island standard time, nft
Pacific/Norfolk 60 norfolk island daylight time, nfst
America/Asuncion 0 paraguay standard time, pyt
America/Asuncion zone paraguay summer time, pyst
America/Eirunepe 0 acre standard time, act
America/Eirunepe zone acre summer time
America/Mazatlan 0 mexican pacific standard time
America/Mazatlan zone mexican pacific daylight time
America/Miquelon 0 st. pierre & miquelon standard time, pmst
America/Miquelon 60 st. pierre & miquelon daylight time, pmdt
America/Santiago 0 chile standard time, clt
America/Santiago 60 chile summer time, clst
Antarctica/Casey 0 casey time
Antarctica/Davis 0 davis time, davt
Antarctica/Davis zone davis summer time, davst
Antarctica/Syowa 0 syowa time, syot
Antarctica/Syowa zone syowa summer time, syost
Asia/Krasnoyarsk 0 krasnoyarsk standard time, krat
Asia/Krasnoyarsk zone krasnoyarsk summer time, krast
Asia/Novosibirsk 0 novosibirsk standard time, novt
Asia/Novosibirsk zone novosibirsk summer time, novst
Asia/Ulaanbaatar 0 ulat
Asia/Ulaanbaatar zone ulast
Atlantic/Stanley 0 falkland islands standard time, fkt
Atlantic/Stanley zone falkland islands summer time, fkst
Europe/Volgograd 0 volgograd standard time
Europe/Volgograd zone volgograd summer time
Indian/Christmas 0 christmas island time, cxt
Indian/Christmas zone christmas island summer time, cxst
Indian/Kerguelen 0 french southern & antarctic time, tft
Indian/Kerguelen zone french southern & antarctic lands summer time, tfst
Indian/Mauritius 0 mauritius standard time, mut
Indian/Mauritius zone mauritius summer time, must
Pacific/Funafuti 0 tuvalu time, tvt
Pacific/Funafuti zone tuvalu summer time, tvst
Pacific/Pitcairn zone pitcairn daylight time
America/Guayaquil 0 ecuador time, ect
America/Guayaquil zone ecuador summer time, ecst
Antarctica/Mawson 0 mawson time, mawt
Antarctica/Mawson zone mawson summer time, mawst
Antarctica/Vostok 0 vostok time, vost
Antarctica/Vostok zone vostok summer time, vosst
Pacific/Enderbury 0 phoenix islands time, phot
Pacific/Enderbury zone phoenix is. summer time, phost
Pacific/Galapagos 0 galapagos time, galt
Pacific/Galapagos zone galapagos summer time, galst
Pacific/Marquesas 0 marquesas time, mart
Pacific/Marquesas zone marquesas summer time, marst
Pacific/Rarotonga 0 cook islands standard time, ckt
Pacific/Rarotonga zone cook islands half summer time, ckhst
Pacific/Tongatapu 0 tonga standard time, tot
Pacific/Tongatapu zone tonga summer time, tost
America/Montevideo 0 uruguay standard time, uyt
America/Montevideo zone uruguay summer time, uyst
America/Paramaribo 0 suriname time, srt
America/Paramaribo zone suriname summer time, srst
Antarctica/Rothera 0 rothera time, rott
Antarctica/Rothera zone rothera summer time, rotst
Asia/Yekaterinburg 0 yekaterinburg standard time, yekt
Asia/Yekaterinburg zone yekaterinburg summer time, yekst
Pacific/Kiritimati 0 line islands time, lint
Pacific/Kiritimati zone line is. summer time, linst
Atlantic/Cape_Verde 0 cape verde standard time, cvt
Atlantic/Cape_Verde zone cape verde summer time, cvst
Australia/Lord_Howe 0 lord howe standard time, lhst
Australia/Lord_Howe 30 lord howe daylight time, lhdt
America/Santa_Isabel 0 northwest mexico standard time
America/Santa_Isabel 60 northwest mexico daylight time
America/Scoresbysund 0 east greenland standard time, egt
America/Scoresbysund 60 east greenland summer time, egst
Pacific/Port_Moresby 0 papua new guinea time, pgt
Pacific/Port_Moresby zone papua new guinea summer time, pgst
Atlantic/South_Georgia 0 south georgia time
Atlantic/South_Georgia zone south georgia daylight time
Antarctica/DumontDUrville 0 dumont-d\u2019urville time, ddut
Antarctica/DumontDUrville zone dumont-d'urville summer time, ddust
Asia/Kashgar 0 xinjiang standard time, xjt
Asia/Kashgar zone xinjiang daylight time, xjdt
CET 0 central european time
Europe/Istanbul 0 turkey time, trt
Europe/Istanbul zone turkey summer time, trst
Asia/Tomsk 0 tomsk standard time
Asia/Tomsk zone tomsk daylight time
Pacific/Honolulu zone hawaii standard time
Europe/Saratov zone saratov standard time
America/Argentina/Buenos_Aires 0 argentine time
America/Argentina/Buenos_Aires zone argentine summer time
Pacific/Bougainville 0 bougainville standard time
Pacific/Bougainville zone bougainville daylight time
Asia/Barnaul 0 barnaul standard time
Asia/Barnaul zone barnaul daylight time
MET 0 middle europe time, met
MET 60 middle europe summer time, mest
Africa/El_Aaiun 0 western european time
Antarctica/Palmer 0 chile time
America/Punta_Arenas zone punta arenas standard time
Europe/Kirov zone moscow daylight time
Pacific/Kanton 0 kanton standard time
Pacific/Kanton zone kanton daylight time
Europe/Astrakhan zone astrakhan standard time
Asia/Famagusta 0 eastern european time
Europe/Ulyanovsk zone ulyanovsk standard time
Asia/Srednekolymsk 0 srednekolymsk time, sret
Asia/Srednekolymsk zone srednekolymsk daylight time, sredt
"""
_BY_NAME: Final = {
    name: (zone, rule)
    for zone, rule, names in (line.split(" ", 2) for line in _TABLE.splitlines())
    for name in names.split(", ")
}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # a time of the zone
_FIRST_MS: Final = -2_208_988_800_000
"""1900-01-01: before it Java takes the standard time of today."""
_CYCLE_MS: Final = 146_097 * 86_400_000
"""The 400 years after which days of the week, and with them the rules of summer time, come again."""
_LAST_MS: Final = 20 * _CYCLE_MS - 86_400_000
"""In the year 9969; `datetime` ends soon after."""


@lru_cache(maxsize=1)
def _names() -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, _BY_NAME)), re.IGNORECASE)


def name_at(text: str, at: int) -> str | None:
    """Returns the name of a zone that begins at `at` in `text`, as it is written there; None without one."""
    match = _names().match(text, at)
    return match[0] if match else None


def offset_ms(name: str, wall_ms: int) -> int:
    """Returns how far ahead of UTC the zone of `name` is at the local time `wall_ms` (since 1970-01-01T00:00 there)."""
    zone, rule = _BY_NAME[name.lower()]
    known = wall_ms if _FIRST_MS <= wall_ms <= _LAST_MS else (wall_ms - _LAST_MS) % _CYCLE_MS + _LAST_MS - _CYCLE_MS
    local = (_EPOCH + timedelta(milliseconds=known)).replace(tzinfo=ZoneInfo(zone))
    ahead, summer = local.utcoffset() or timedelta(), local.dst() or timedelta()
    if rule != "zone" or wall_ms < _FIRST_MS:
        ahead -= summer
    if rule != "zone":
        ahead += timedelta(minutes=int(rule))
    return ahead // timedelta(milliseconds=1)
